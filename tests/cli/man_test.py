#!/usr/bin/env python3
"""The manual pages: their roff is right by the tools that read it, and what groff makes of a page is
what --help prints, word for word. man_test.py MAN_TOOL, with ZONAL_PROGRAM the program to test."""
import os
import re
import shutil
import subprocess
import sys

from harness import report, run, run_tests, skip

TOOL = os.path.abspath(sys.argv[1])
BUILT = os.path.join(os.environ.get("ZONAL_BUILD_DIR", "build"), "share/man/man1")
PAGES = [line.split() for line in run("man", "--list").stdout.split("\n")[:-1]]
REQUESTS = {".SH", ".SS", ".TH", ".TP", ".PP", ".nf", ".fi", ".BR", '.\\"'}


def page(words):
    done = run("man", *words)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


def command(tool, *arguments, text=None):
    environment = dict(os.environ, LC_ALL="C.UTF-8", MANWIDTH="80", MANROFFOPT="")
    done = subprocess.run(
        [tool, *arguments], input=text, capture_output=True, text=True, timeout=60, env=environment
    )
    return done.stdout, done.stderr


def render(text):
    """The page as groff prints it: no hyphenation, no adjusting, no overstrikes."""
    return command("groff", "-man", "-Tascii", "-P-cbou", "-rHY=0", "-dAD=l", text=text)[0]


def roff_mistakes(text):
    """What a reader of roff would take for something else, without any tool."""
    wrong = []
    for line in text.split("\n"):
        if line.startswith(".") and line.split(" ")[0] not in REQUESTS:
            wrong.append(line)
        if line.startswith("'") or not line.isascii():
            wrong.append(line)
        if line.startswith('.\\"'):
            continue
        plain = re.sub(r"\\(-|e|&|fB|fI|fR|\(aq|\(ga|\(ha|\(ti)", "", line)
        if "\\" in plain or re.search(r"[-'`^~]", plain):
            wrong.append(line)
    return wrong


def words_of_help(text):
    """The words of a help text, without "usage:" and with titles as the page has them."""
    lines = text.removeprefix("usage:").split("\n")
    for i, line in enumerate(lines[:-1]):
        if re.fullmatch(r"\S.*:", line) and lines[i + 1].startswith(" "):
            lines[i] = line[:-1].upper()
    return " ".join(lines).split()


def words_of_page(text):
    """Those of a rendered page between SYNOPSIS and EXIT STATUS, without the headings it adds."""
    body = re.search(r"\nSYNOPSIS\n(.*)\nEXIT STATUS\n", text, re.S).group(1)
    body = body.replace("\nDESCRIPTION\n", "\n", 1)
    lines = [re.sub(r"^   (\S.*)$", lambda m: m.group(1).upper(), x) for x in body.split("\n")]
    return " ".join(lines).split()


def test_pages():
    report(len(PAGES) > 20 and [] in PAGES and ["data", "pack"] in PAGES, "there is a list", PAGES)
    listed = re.findall(r"^  (\w+)  ", run("--help").stdout, re.M)
    without = [name for name in listed if [name] not in PAGES]
    report(len(listed) > 10 and not without, "every command has a page", without)
    for words in PAGES:
        name = "-".join(["zonal", *words])
        text = page(words)
        report(not roff_mistakes(text), f"roff: {name}", roff_mistakes(text))
        head = text.split(".SH SYNOPSIS")[0]
        said = ".SH NAME\n" + name.replace("-", "\\-") + " \\- "
        report(said in head, f"the name line of {name}", head)
        options = re.findall(r"^  (--[a-z0-9-]+)", run(*words, "--help").stdout, re.M)
        missing = [o for o in options if f"\n.TP\n\\fB{o}\\fR".replace("-", "\\-") not in text]
        report(not missing, f"{len(options)} options of {name}", missing)


def test_built():
    if not os.path.isdir(BUILT):
        return skip("the built pages", f"{BUILT} is not there")
    names = sorted("-".join(["zonal", *words]) + ".1" for words in PAGES)
    report(sorted(os.listdir(BUILT)) == names, "the build has written every page", os.listdir(BUILT))
    for words in ([], ["train"], ["data", "pack"]):
        with open(os.path.join(BUILT, "-".join(["zonal", *words]) + ".1")) as file:
            report(file.read() == page(words), f"as the program makes it: {words}")


def test_rendered():
    if not shutil.which("groff"):
        return skip("what groff prints", "groff is not installed")
    for words in PAGES:
        asked, shown = run(*words, "--help").stdout, render(page(words))
        expected, found = words_of_help(asked), words_of_page(shown)
        at = next((i for i, (a, b) in enumerate(zip(expected, found)) if a != b), -1)
        why = f"{len(expected)} and {len(found)} words; {expected[at:at + 8]} {found[at:at + 8]}"
        report(expected == found and len(found) > 10, "rendered: " + " ".join(words), why)


LINTERS = {
    "groff": ["groff", "-man", "-ww", "-z"],
    "man": ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"],
    "mandoc": ["mandoc", "-T", "lint", "-W", "warning"],
}


def complaints(tool, path):
    out, err = command(*LINTERS[tool], path)
    lines = (out if tool == "mandoc" else "").split("\n") + err.split("\n")
    return [line for line in lines if line and "missing date" not in line]  # builds are repeatable


def test_linted():
    for tool in LINTERS:
        if not shutil.which(tool):
            skip(f"linted by {tool}", f"{tool} is not installed")
            continue
        wrong = []
        for words in PAGES:
            with open("page.1", "w") as file:
                file.write(page(words))
            wrong += complaints(tool, "page.1")
        report(not wrong, f"linted by {tool}", "\n".join(wrong))
        with open("page.1", "w") as file:
            file.write(page([]).replace(".SH NAME", ".SH NAME\n.NOSUCHMACRO \\(zz"))
        if tool != "man":  # its answer depends on how it was installed
            report(complaints(tool, "page.1"), f"{tool} finds a planted mistake")
        os.remove("page.1")


HARD = r"""usage: zonal made-up X.npy [--dots]
       zonal made-up --list

.hidden at the start, a back\slash, \fBnot bold\fR and \(aq; it's `quoted` ~ ^
'single quotes at the start and -- dashes - everywhere-here.

examples:
  .profile is first
  'tis verbatim \n  with   blanks
  zonal made-up 'a b' --dots=..

options:
  --dots ..\d             .TH at the start of the text, \e
                          .SH at the start of the next line
                          'and a quote
  --long-name FIRST,SECOND|third
                          on a line of its own
  --flag                  nothing - but a flag

Other things:
  --help                  print this help
"""


def test_escapes():
    with open("help", "w") as file:
        file.write(HARD)
    text = command(TOOL, "help")[0]
    os.remove("help")
    report(not roff_mistakes(text), "hard help: roff", roff_mistakes(text))
    expected = [
        "\n\\&.hidden at the start, a back\\eslash, \\efBnot bold\\efR and \\e(aq; it\\(aqs",
        "\n\\(aqsingle quotes at the start and \\-\\- dashes \\- everywhere\\-here.\n",
        "\n.SH EXAMPLES\n.nf\n  .profile is first\n  \\(aqtis verbatim \\en  with   blanks\n",
        "\n.TP\n\\fB\\-\\-dots\\fR \\fI\\&..\\ed\\fR\n\\&.TH at the start of the text, \\ee\n",
        "\n\\&.SH at the start of the next line\n\\(aqand a quote\n",
        "\n.TP\n\\fB\\-\\-long\\-name\\fR \\fIFIRST,SECOND|third\\fR\non a line of its own\n",
        "\n.TP\n\\fB\\-\\-flag\\fR\nnothing \\- but a flag\n.SS Other things\n",
        ".SH SEE ALSO\n.BR zonal (1)\n",
        "\nzonal\\-made\\-up \\- it\\(aqs .only a test\n",
    ]
    for part in expected:
        report(part in text, f"hard help: {part!r}", text)
    if not shutil.which("groff"):
        return skip("hard help: rendered", "groff is not installed")
    found = words_of_page(render(text))
    report(found == words_of_help(HARD.replace("Other things", "OTHER THINGS")),
           "hard help: word for word", found)


def test_refused():
    for words in (["nothing"], ["data", "nothing"], ["train", "pack"], ["--lisp"]):
        done = run("man", *words)
        good = done.returncode == 2 and not done.stdout and words[-1] in done.stderr
        report(good and done.stderr.count("\n") == 1, f"refused: man {words}", done.stderr)


run_tests(test_pages, test_built, test_rendered, test_linted, test_escapes, test_refused)
