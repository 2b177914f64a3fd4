#!/usr/bin/env python3
"""The pages of documentation: links lead somewhere, formulas are written so that GitHub renders them."""
import os
import re

from harness import SOURCE, finish, report

DOCS = os.path.join(SOURCE, "docs")
PAGES = [os.path.join(SOURCE, name) for name in ("README.md", "CONTRIBUTING.md", "NEWS.md")]
PAGES += sorted(os.path.join(DOCS, name) for name in os.listdir(DOCS) if name.endswith(".md"))

# What the formulas use of TeX, all of it known to MathJax.
COMMANDS = set(
    "ast bar begin Big binom cdot chi cos dots ell end frac ge geq in infty int Lambda lambda le left leq "
    "log lVert lvert mathbb max mu ne neq phi pi propto prod psi qquad quad rho right rVert rvert sigma sqrt "
    "sum text tfrac theta times to varphi".split()
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

PLANTED = [
    "$a\\, b$", "$a^*$ and $b^*$", "$$x$$", "$x", "| $|x|$ | b |", "$\\nosuch$", "$\\frac{1}{2$", "$x$y",
    "```math\n\\left( x\n```", "$ x $",
]
for text in PLANTED:
    report(list(wrong_formulas(text)), f"a planted mistake is found: {text!r}")
for text in ["$x_i$-th, $|x|$.", "| $\\lvert x\\rvert$ | $a_{ij}$ |", "```math\n\\frac1B \\, |x|\n```", "costs `$HOME`"]:
    report(not list(wrong_formulas(text)), f"what is right passes: {text!r}", list(wrong_formulas(text)))
finish()
