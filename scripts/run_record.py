#!/usr/bin/env python3
"""What made a run, for its record: one JSON object.

    scripts/run_record.py PROGRAM VERSION RUN
    scripts/run_record.py --check PROGRAM        status 1 where the program does not tell what is needed
    scripts/run_record.py --stamp PROGRAM DEVICE FILE
                                                 adds model and commit to lines of zonal bench --json; DEVICE is that
                                                 of lines that name none

A run that was stopped before its end is refused. VERSION is what "PROGRAM --version" said when the run began: the
program may have been built anew since. As in the records of zonal reproduce (src/reproduce/records.h):

    steps, batch                     how long the run was, and the images of a step
    configuration                    options that were asked for, but for the seed and where the images lie
    decided                          what the program made of options that were left to it
    images                           a checksum of the run's record of its images; another than theirs
    device, version, commit, date    commit is empty where the program does not know it
"""
import datetime
import hashlib
import json
import os
import re
import subprocess
import sys

# They say how fast, where and how often (zonal__run_setting_counts), or where the images lie.
NO_SETTINGS = {"seed", "threads", "workers", "data-location", "graph", "bucket-size", "device", "log-every", "keep",
               "quiet", "checkpoint-every", "checkpoint-minutes", "tensorboard", "out", "config",
               "autotune-cache", "data", "class-list"}
LINE = re.compile(r'([\w-]+) = (?:"((?:[^"\\]|\\.)*)"|(\S+)) +# (.*)')


def read_settings(run):
    """Key: value and where it is from, as in config.toml; without the folder of a file of weights."""
    with open(os.path.join(run, "config.toml"), encoding="utf-8") as file:
        found = [LINE.match(line).groups() for line in file if line.strip()]
    return {key: ((os.path.basename(text) if key == "init" else text) if bare is None else bare, source)
            for key, text, bare, source in found}


def last_step(run):
    with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
        return [line for line in map(json.loads, file) if line["kind"] == "step"][-1]["step"]


def said_by(program, *arguments):
    try:
        return subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"run_record: \"{program} {' '.join(arguments)}\" failed, so a run could not be recorded: {error}")


def models(program):
    devices = json.loads(said_by(program, "devices", "--json"))["devices"]
    return {entry["name"]: entry["model"] or entry["name"] for entry in devices}


def model(program, device):
    return next(model for name, model in models(program).items() if name.startswith(device))


def parts_of(version):
    """"zonal 0.1.0, commit be71a7a7f552": number and commit."""
    _, number, *commit = re.split(r",? ", version)
    return number, commit[-1] if commit else ""


def check_ended(run):
    with open(os.path.join(run, "log.txt"), encoding="utf-8") as file:
        ends = [line.split()[0] for line in file if line.startswith(("done: ", "stopped after "))]
    if ends[-1:] != ["done:"]:
        sys.exit(f"run_record: {run} did not come to its end, so it is not recorded")


def made_by(program, version, run):
    check_ended(run)
    settings = read_settings(run)
    counting = {key: of for key, of in settings.items() if key not in NO_SETTINGS}
    with open(os.path.join(run, "data.txt"), "rb") as file:
        images = hashlib.sha256(file.read()).hexdigest()[:16]
    number, commit = parts_of(version)
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "steps": last_step(run),
        "batch": int(settings["batch"][0]),
        "configuration": {key: value for key, (value, source) in counting.items() if not source.endswith("default")},
        "decided": {key: source.split()[1] if source.startswith("here ") else value
                    for key, (value, source) in counting.items() if " by " in source},
        "images": images,
        "device": model(program, settings["device"][0]),
        "version": number,
        "commit": commit,
        "date": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def stamp(program, device, path):
    _, commit = parts_of(said_by(program, "--version").strip())
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    with open(path + ".new", "w", encoding="utf-8") as file:
        for line in lines:
            line |= {"model": model(program, line.get("device", device)), "commit": commit}
            file.write(json.dumps(line) + "\n")
    os.replace(path + ".new", path)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--check":
        parts_of(said_by(sys.argv[2], "--version").strip())
        models(sys.argv[2])
    elif len(sys.argv) == 5 and sys.argv[1] == "--stamp":
        stamp(*sys.argv[2:])
    elif len(sys.argv) == 4:
        print(json.dumps(made_by(*sys.argv[1:])))
    else:
        sys.exit(__doc__)
