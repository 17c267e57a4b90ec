#!/usr/bin/env python3
"""Writes the manual page of a program from what its --help says: man.py PROGRAM VERSION OUT.1.gz

The help has a description, a line "Usage:", and sections of options, as CLI11 prints them. Each subcommand is asked for its own
help. The page is the same for the same help, so packages can be built again bit by bit.
"""

import gzip
import os
import re
import subprocess
import sys

COLUMN = 30  # where the texts of options begin


def help_of(program, *words):
    """The lines that the program prints; it calls itself by its name alone."""
    name = os.path.basename(program)
    command = [name, *words, "--help"]
    done = subprocess.run(command, executable=program, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.rstrip().splitlines()


def escaped(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga").replace("^", "\\(ha")
    return "\\&" + text if text.startswith(".") else text


def named(words):
    """The names and the value of an option, as readers write them: "-w, --width INT in [40 - 1000]"."""
    words = re.sub(r"\b(\w+):\1 in ", r"\1 in ", words.strip())
    for noise in (":PATH(existing)", " REQUIRED", "{false}"):
        words = words.replace(noise, "")
    return words.replace(",--", ", --")


def parse(lines):
    """(description, usage, [(title, [(option, text)])], footer), the texts as lists of lines."""
    at = next(i for i, line in enumerate(lines) if line.startswith("Usage:"))
    description, usage, sections, footer = lines[:at], lines[at][7:], [], []
    for line, following in zip(lines[at + 1:], [*lines[at + 2:], ""]):
        if re.fullmatch(r"[A-Z][^:]*:", line):
            sections.append((line[:-1], []))
        elif line.startswith(" " * COLUMN) and sections:
            sections[-1][1][-1][1].append(line.strip())
        elif line.startswith("  ") and sections:
            width = len(line) if following.startswith(" " * COLUMN) else COLUMN  # its text is below it, or beside it
            sections[-1][1].append((named(line[:width]), [line[width:]] if line[width:] else []))
        elif line:
            footer.append(line)
    return description, usage, sections, footer


def paragraphs(lines):
    """Text as roff: lines that begin with spaces stay as they are."""
    page, plain = [], True
    for line in lines:
        if line.startswith(" ") == plain and line:
            page.append(".PP" if not plain else ".PP\n.nf")
            if not plain:
                page.insert(-1, ".fi")
            plain = not plain
        page.append(escaped(line) if line else ".PP" if plain else "")
    if not plain:
        page.append(".fi")
    while page and page[0] == ".PP":
        page.pop(0)
    return page


def options(entries):
    if not any(text or option.startswith("-") for option, text in entries):  # a list of names
        return [escaped(", ".join(option for option, _ in entries))]
    page = []
    for option, text in entries:
        page += [".TP", f"\\fB{escaped(option)}\\fR".replace(",", ",\\:"), *map(escaped, text)]
    return page


def manual(program, version):
    """The page as roff."""
    name = os.path.basename(program)
    description, usage, sections, footer = parse(help_of(program))
    first = description[0].split(". ")[0].rstrip(".")
    page = [f'.TH {name.upper()} 1 "" "Sluice {version}" "User Commands"', ".ad l", ".nh", ".SH NAME",
            f"{escaped(name)} \\- {escaped(first[0].lower() + first[1:])}", ".SH SYNOPSIS", f"\\fB{escaped(usage)}\\fR",
            ".SH DESCRIPTION", *paragraphs(description)]
    commands = next((entries for title, entries in sections if title == "Subcommands"), [])
    for title, entries in sections:
        if title != "Subcommands":
            heading = "ARGUMENTS" if title == "Positionals" else title.upper()
            page += [f".SH {escaped(heading)}", *options(entries)]
    if commands:
        page.append(".SH COMMANDS")
    for command, text in commands:
        word = command.split(",")[0]
        _, usage, parts, _ = parse(help_of(program, word))
        page += [f".SS {escaped(command)}", *map(escaped, text), ".PP", f"\\fB{escaped(usage)}\\fR"]
        page += options([entry for _, entries in parts for entry in entries if not entry[0].startswith("-h")])
    if footer:
        page += [".SH NOTES", *paragraphs(footer)]
    return "\n".join(page) + "\n"


def main():
    program, version, out = sys.argv[1:]
    with open(out, "wb") as file:
        file.write(gzip.compress(manual(os.path.abspath(program), version).encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
