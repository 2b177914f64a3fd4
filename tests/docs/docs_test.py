#!/usr/bin/env python3
"""The pages of documentation: links lead somewhere, formulas are written so that GitHub renders them."""
import os
import re
import subprocess
import tempfile

from harness import SOURCE, finish, report

DOCS = os.path.join(SOURCE, "docs")
PAGES = [os.path.join(SOURCE, name) for name in ("README.md", "CONTRIBUTING.md", "NEWS.md")]
PAGES += sorted(os.path.join(DOCS, name) for name in os.listdir(DOCS) if name.endswith(".md"))

# What the formulas use of TeX, all of it known to MathJax.
COMMANDS = set(
    "ast bar begin Big binom cdot chi cos dots ell end frac ge geq in infty int Lambda lambda le left leq "
    "log lVert lvert mathbb max mu ne neq partial phi pi propto prod psi qquad quad rho right rVert rvert "
    "sigma sin sqrt sum text tfrac theta times to varphi".split()
)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def prose(text):
    """Without code."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S))


def anchors(path):
    """The names that GitHub gives to the headings of a page."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", read(path), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_links(path):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(read(path))):
        target, _, anchor = link.partition("#")
        if target.startswith("http"):
            continue
        there = os.path.normpath(os.path.join(os.path.dirname(path), target)) if target else path
        if not os.path.exists(there) or (anchor and anchor not in anchors(there)):
            yield link


def mistakes(formula):
    """In the TeX of one formula."""
    unknown = set(re.findall(r"\\([A-Za-z]+)", formula)) - COMMANDS
    if unknown:
        yield f"unknown {unknown}"
    bare = re.sub(r"\\.", "", formula)
    if bare.count("{") != bare.count("}") or formula.count("\\left") != formula.count("\\right"):
        yield "brackets do not match"
    if bare.count("_{") + bare.count("^{") > bare.count("{") or re.search(r"[_^]\s*$|[_^][_^]", bare):
        yield "a script without its base or text"


def wrong_formulas(text):
    """Markdown looks at inline formulas first: \\, would lose its backslash, two * make an emphasis,
    and | ends the cell of a table."""
    for formula in re.findall(r"^```math\n(.*?)^```$", text, re.M | re.S):
        yield from (f"{m}: {formula}" for m in mistakes(formula))
        if not formula.strip() or "\n\n" in formula:
            yield f"an empty line: {formula}"
    if "$$" in text:
        yield "write ```math for $$"
    for paragraph in prose(text).split("\n\n"):
        for line in [*re.findall(r"^\|.*$", paragraph, re.M), re.sub(r"^\|.*$", "", paragraph, flags=re.M)]:
            in_table = line.startswith("|")
            if line.count("$") % 2:
                yield f"a $ without its other: {line}"
                continue
            pieces = line.split("$")
            for formula, after in zip(pieces[1::2], pieces[2::2]):
                yield from (f"{m}: {formula}" for m in mistakes(formula))
                if re.search(r"\\[^A-Za-z]|\*", formula) or formula != formula.strip() or not formula:
                    yield f"not for an inline formula: {formula}"
                if in_table and "|" in formula:
                    yield f"| in a table: {formula}"
                if re.match(r"\w", after):
                    yield f"no letter directly after a formula: {formula}"


for page in PAGES:
    name = os.path.relpath(page, SOURCE)
    report(not list(broken_links(page)), "links of " + name, list(broken_links(page)))
    report(not list(wrong_formulas(read(page))), "formulas of " + name, list(wrong_formulas(read(page))))
report(sum(read(p).count("](") for p in PAGES) > 20, "there are links")
report(sum(read(p).count("```math") for p in PAGES) >= 8, "there are formulas")

# Words that the glossary has replaced, but for those that also mean something else: a part, a frame, an
# order. The slope of a regression line, in the backward pass of batch norms, is one.
OTHER_MEANINGS = set("part frame deviation head norm choosing worker node world order".split())
SLOPES = ("src/backend/cuda/training/nn_",)


def replaced_words():
    """The words of the glossary's last column."""
    rows = re.findall(r"^\| .* \| .* \| (.+) \|$", read(os.path.join(DOCS, "glossary.md")), re.M)
    words = {word for row in rows[1:] for word in row.split(", ")}
    return {word for word in words - OTHER_MEANINGS if re.fullmatch("[a-z]+", word)}


def stale_words(text, words):
    return re.findall(r"\b(?:%s)s?\b" % "|".join(sorted(words)), text.lower())


def check_words():
    words = replaced_words()
    wanted = {"picture", "law", "choices", "slope", "residence", "meter", "meters"}
    report(wanted <= words, "words: the glossary names those that were replaced", wanted - words)
    files = [page for page in PAGES if not page.endswith("glossary.md")]
    for folder in ("include", "src", "recipes", "examples"):
        for place, _, names in os.walk(os.path.join(SOURCE, folder)):
            files += [os.path.join(place, name) for name in names]
    found = []
    for file in files:
        name = os.path.relpath(file, SOURCE)
        stale = stale_words(name + " " + read(file), words - ({"slope"} if name.startswith(SLOPES) else set()))
        found += [f"{name}: {word}" for word in stale]
    report(len(files) > 500 and not found, "words: none that the glossary has replaced", found)
    for text in ("Pictures of cats", "the residence", "a law of", "its slope"):
        report(stale_words(text, words), f"a replaced word is found: {text!r}")
    for text in ("diameter", "lawful", "telescope", "parameters"):
        report(not stale_words(text, words), f"what is no such word passes: {text!r}")


check_words()


def strange_enumerators(header):
    """Those without their type's name before them."""
    for name, body in re.findall(r"typedef enum (\w+) \{(.*?)\}", header, re.S):
        yield from (e for e in re.findall(r"\b(ZONAL_\w+)\s*=", body) if not e.startswith(name.upper() + "_"))


def check_headers():
    folder = os.path.join(SOURCE, "include/zonal")
    text = "".join(read(os.path.join(folder, name)) for name in os.listdir(folder))
    strange = list(strange_enumerators(text))
    report(text.count("typedef enum") > 9 and not strange, "headers: enumerators have their type's prefix", strange)
    planted = "typedef enum zonal_colour { ZONAL_COLOUR_RED = 0, ZONAL_BLUE = 1 } zonal_colour;"
    report(list(strange_enumerators(planted)) == ["ZONAL_BLUE"], "headers: one without it is found")


check_headers()


def struct_members(header, name):
    """The members of a struct of the sources: of functions, the names of the pointers."""
    body = re.search(r"typedef struct %s \{(.*?)\n\} %s;" % (name, name), header, re.S).group(1)
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    for declaration in filter(None, map(str.strip, body.split(";"))):
        function = re.search(r"\(\*(\w+)\)", declaration)
        if function:
            yield function.group(1)
        else:
            yield from (re.search(r"(\w+)(\[\w+\])?$", part.strip()).group(1) for part in declaration.split(","))


def check_porting():
    """docs/porting.md lists what a backend fills: all of it, and nothing else."""
    page = read(os.path.join(DOCS, "porting.md"))
    backend = os.path.join(SOURCE, "src/backend")
    for header, name in (
        ("backend.h", "zonal__backend"),
        ("device.h", "zonal__runtime"),
        ("training/tables.h", "zonal__training_tables"),
    ):
        there = set(struct_members(read(os.path.join(backend, header)), name))
        table = re.search(rf"Members of `{name}`:\n\n((?:\|.*\n)+)", page).group(1)
        listed = {m for row in table.split("\n")[2:] for m in re.findall(r"`(\w+)`", row.split("|")[1] if row else "")}
        report(there == listed and len(there) > 7, f"porting.md: {name}", there ^ listed)
    code = re.search(r"enum zonal__operation \{(.*?)\} zonal__operation;", read(backend + "/backend.h"), re.S)
    there = set(re.findall(r"^    (ZONAL__\w+),?$", code.group(1), re.M)) - {"ZONAL__OPERATIONS"}
    listed = {m for row in re.findall(r"^\| (`ZONAL__.*?) \|", page, re.M) for m in re.findall(r"`(\w+)`", row)}
    report(there == listed and len(there) > 7, "porting.md: operations", there ^ listed)
    files = re.findall(r"`((?:src|cmake|scripts|tests)/[\w./]+)`", page)
    gone = [f for f in files if "hip" not in f and not os.path.exists(os.path.join(SOURCE, f))]
    report(len(files) > 8 and not gone, "porting.md: the files it names are there", gone)


check_porting()

# The limits set for the walks in CONTRIBUTING.md, which says what is counted.
MOST_FILES = (18, 32, 8)


def walks(text):
    """(title, number in the title, files in order) of each walk."""
    section = re.search(r"^## Three walks\n(.*?)(?=^## )", text, re.M | re.S).group(1)
    for part in section.split("\n### ")[1:]:
        title, _, rest = part.partition("\n")
        entries = re.findall(r"^(\d+)\. `([^`]+)`: \S", rest, re.M)
        numbered = [int(n) for n, _ in entries] == list(range(1, len(entries) + 1))
        said = re.search(r": (\d+) files", title)
        yield title, int(said.group(1)) if said and numbered else -1, [file for _, file in entries]


def wrong_walks(text):
    found = list(walks(text))
    if len(found) != len(MOST_FILES):
        yield f"{len(found)} walks"
        return
    for (title, said, files), most in zip(found, MOST_FILES):
        if said != len(files):
            yield f"{title}: {len(files)} files, numbered from 1, are listed"
        if not 0 < len(files) <= most:
            yield f"{title}: not 1 to {most} files"
        if len(set(files)) < len(files):
            yield f"{title}: a file twice"
        yield from (f"{title}: no {f}" for f in files if not os.path.isfile(os.path.join(SOURCE, f)))
    yield from (f"in both walks: {f}" for f in found[0][2] if f in found[1][2])
    if found[2][0].count("two change") != 1 or text.count("**change**") != 2:
        yield "a kernel family changes two files"


def starts_of_loop(text, status):
    """How often the restarting loop of docs/distributed.md starts a job that ends with that status."""
    (loop,) = re.findall(r"^for .*mpirun.*$", text, re.M) or [""]
    with tempfile.TemporaryDirectory() as folder:
        with open(folder + "/mpirun", "w") as file:
            file.write(f"#!/bin/sh\necho >>{folder}/starts\nexit {status}\n")
        os.chmod(folder + "/mpirun", 0o755)
        path = folder + ":" + os.environ["PATH"]
        subprocess.run(["sh", "-c", loop], env={**os.environ, "PATH": path}, timeout=60)
        return len(read(folder + "/starts")) if loop else None


distributed = read(os.path.join(DOCS, "distributed.md"))
for status, starts in ((0, 1), (1, 4), (2, 1), (137, 4)):
    found = starts_of_loop(distributed, status)
    report(found == starts, f"distributed.md: a job that ends with {status} is started {starts} times", found)

CONTRIBUTING = os.path.join(SOURCE, "CONTRIBUTING.md")
report(not list(wrong_walks(read(CONTRIBUTING))), "CONTRIBUTING.md: the walks", list(wrong_walks(read(CONTRIBUTING))))
for old, new in (
    ("1. `src/cli/main.c`", "1. `src/cli/gone.c`"),
    ("2. `src/cli/loss/loss.c`", "2. `src/cli/main.c`"),
    ("a loss value: 18 files", "a loss value: 17 files"),
    ("\n### From a JPEG", "19. `README.md`: too far\n\n### From a JPEG"),
    ("1. `src/cli/train/train.c`", "1. `src/cli/main.c`"),
    ("\n### A new kernel family", "\n#### A new kernel family"),
):
    planted = read(CONTRIBUTING).replace(old, new)
    faults = planted != read(CONTRIBUTING) and list(wrong_walks(planted))
    report(faults, f"a planted fault of the walks is found: {new!r}")
files = re.findall(r"`((?:src|include|cmake|scripts|tests|docs)/[\w./]+)`", read(CONTRIBUTING))
gone = [f for f in files if not re.search("NAME|SUBJECT", f) and not os.path.exists(os.path.join(SOURCE, f))]
report(len(files) > 60 and not gone, "CONTRIBUTING.md: the files it names are there", gone)

PLANTED = [
    "$a\\, b$", "$a^*$ and $b^*$", "$$x$$", "$x", "| $|x|$ | b |", "$\\nosuch$", "$\\frac{1}{2$", "$x$y",
    "```math\n\\left( x\n```", "$ x $",
]
for text in PLANTED:
    report(list(wrong_formulas(text)), f"a planted mistake is found: {text!r}")
for text in ["$x_i$-th, $|x|$.", "| $\\lvert x\\rvert$ | $a_{ij}$ |", "```math\n\\frac1B \\, |x|\n```", "costs `$HOME`"]:
    report(not list(wrong_formulas(text)), f"what is right passes: {text!r}", list(wrong_formulas(text)))
finish()
