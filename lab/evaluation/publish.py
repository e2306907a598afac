"""The report with all tables and samples below one folder, and docs/evaluation.md: verdicts. Both have the plots.

A run of some suites replaces their sections and plots of a page, and leaves those of the others as they were, each
under its own head. What the top of the page sums up is read from its sections.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.bench import plots
from lab.bench.core import Outcome
from lab.bench.plots import Plot
from lab.bench.report import Table, header_lines, tables_of
from lab.evaluation.core import Claim, Finding

PAGE, FOLDER = "evaluation.md", "evaluation"
FEW_NOTES = 1
_HOLDS = {True: "holds", False: "**does not hold**"}


@dataclass(frozen=True)
class Section:
    """One suite's part of the report."""

    name: str
    title: str
    intro: str
    outcome: Outcome
    plots: Sequence[Plot]
    claims: Sequence[Claim]
    findings: Sequence[Finding] = ()

    @property
    def is_sound(self) -> bool:
        """Everything was measured, and every claim holds."""
        return not self.outcome.failures and all(one.holds for one in self.claims)

    def text(self, machine: Mapping[str, str], command: str, *, is_whole: bool) -> str:
        """Markdown: what was done, the verdicts, the plots, the tables, and what must be said beside them; not
        `is_whole`: only what stands in docs."""
        verdicts = [claims_table(self.claims), *([findings_table(self.findings)] if self.findings else [])]
        drawn = [f"![{one.title}]({FOLDER}/{one.file_name})" for one in self.plots]
        notes = list(self.outcome.notes)
        if is_whole:
            head = f"{header_lines(machine, command)} The whole run took {machine['took']}."
            begin, tables = [head, self.intro.strip()], [one.markdown() for one in tables_of(self.outcome)]
        else:
            begin, tables = [_short_head(machine, command), _first_sentence(self.intro)], []
            if len(notes) > FEW_NOTES:
                notes[FEW_NOTES:] = [f"Further notes in the report of that run: {len(notes) - FEW_NOTES}."]
        notes += [f"Not measured: {one}" for one in self.outcome.failures]
        listed = ["\n".join(f"- {one}" for one in notes)] if notes else []
        return "\n\n".join([f"## {self.title}", *begin, *verdicts, *drawn, *tables, *listed])


def _short_head(machine: Mapping[str, str], command: str) -> str:
    where = f"{machine['kernel']}, {machine['cpu']}, commit {machine['commit']}"
    return f"Measured by `{command}` on {machine['date']}, {where}, load average {machine['load']}."


def _first_sentence(text: str) -> str:
    first, dot, _ = " ".join(text.split()).partition(". ")
    return textwrap.fill(first + dot.strip(), 120, break_long_words=False, break_on_hyphens=False)


def claims_table(claims: Sequence[Claim]) -> str:
    rows = [[one.sentence, one.measured, one.bound, _HOLDS[one.holds]] for one in claims]
    return _of_sentences(Table("Claims", ["claim", "measured", "bound, and how it is derived", "verdict"], rows))


def findings_table(findings: Sequence[Finding]) -> str:
    rows = [[one.row, one.grid, one.thesis, one.peer, one.ours] for one in findings]
    header = ["row", "grid", "the thesis says", "its command sequence, measured here", "ours"]
    return _of_sentences(Table("What the thesis says, and what is measured", header, rows))


def _of_sentences(table: Table) -> str:
    return table.markdown().replace("--:", "---")


# --- the page ---------------------------------------------------------------------------------------------------


def write(
    folder: Path,
    machine: Mapping[str, str],
    command: str,
    sections: Iterable[Section],
    order: Sequence[str],
    *,
    is_whole: bool,
) -> None:
    """Write these sections below `folder`, beside what stands there of other suites; `order` is that of the page."""
    below = folder / FOLDER
    below.mkdir(parents=True, exist_ok=True)
    texts = _sections_of(folder / PAGE)
    for one in sections:
        plots.draw(one.plots, below)
        texts[one.name] = one.text(machine, command, is_whole=is_whole)
    texts = {name: texts[name] for name in order if name in texts}
    parts = [_HEAD, _summary(texts), *(_marked(name, text) for name, text in texts.items())]
    (folder / PAGE).write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _marked(name: str, text: str) -> str:
    return f"<!-- evaluation:{name} -->\n{text.strip()}\n<!-- /evaluation:{name} -->"


def _sections_of(page: Path) -> dict[str, str]:
    """What stands between the markers of a page; empty where there is none."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    pattern = r"<!-- evaluation:([a-z_]+) -->\n(.*?)\n<!-- /evaluation:\1 -->"
    return dict(re.findall(pattern, text, flags=re.DOTALL))


def _summary(texts: Mapping[str, str]) -> str:
    """A row per section, counted in what it says."""
    rows = []
    for name, text in texts.items():
        title = text.partition("\n")[0].removeprefix("## ")
        held, failed = (len(re.findall(rf"\| {re.escape(one)} \|$", text, flags=re.M)) for one in _HOLDS.values())
        unmeasured = text.count("\n- Not measured: ")
        command, date, commit = _HEAD_LINE.findall(text)[0]
        missing = f"; not measured: {unmeasured}" if unmeasured else ""
        link = f"[{title}](#{_anchor(title)}) (`{name}`)"
        rows.append([link, f"{held} of {held + failed}{missing}", f"`{command}`", date, commit])
    header = ["suite", "claims that hold", "command", "measured", "commit"]
    return Table("All claims", header, rows).markdown().replace("**All claims**", "## All claims at a glance")


_HEAD_LINE = re.compile(r"^Measured by `(.*?)` on (.*?), .* commit (.*?), load", flags=re.MULTILINE)


def _anchor(title: str) -> str:
    """As GitHub makes them of headings."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


_HEAD = """\
# The evaluation

Chapter 6 of the thesis on our limiter, beside the thesis' own command sequence, wondershaper's scheme, and what
the thesis did not measure. `./dev evaluate` writes this page, and into `lab/evaluation/results` how each suite
measures, all tables and samples; `./dev evaluate SUITE …` writes those sections anew. `./dev evaluate QUICK=1`
is the short form that CI runs. Both end with 1 when a claim does not hold. The thesis judged by eye, partly by the
sender's counter.

**Who is compared.** *Ours* is the engine that the limiter's process runs, in a process of its own, believed when it
has read back that the kernel has the limits; how a document reaches it is measured by `./dev bench save`. *The thesis'
sequence* is Listing 5.2, written anew from its description. *Wondershaper's scheme* is the HTB scheme of its
versions from 1.4 on; what the installed version does on this kernel is said where it is measured. Each has an
attachment point of its own (network namespaces and veth pairs without offloads), and in each run all of them meet
the same traffic at the same moment. What needs the processor (a gigabit, thousands of links) runs alone. A disturbed
run is repeated once and reported.

**What is counted.** Always at the receiver, never the sender's counter. Limits count L2 bytes (payload + 42 per UDP
datagram over IPv4 in one frame); a goodput is payload of complete datagrams, and where the limit is compared with
it, *what headers leave* is limit * L / (L + 42), with 34 bytes for each further fragment.

**What is allowed.** A window of T seconds may carry rate * T + burst + two frames, no more: one that finds the
queue empty and goes straight on, and one that begins on the last byte of the burst. With heartbeats, which do not wait,
it is the room of the link's queue more; while more is offered, it carries no less than rate * T minus the same,
but for the time in which the whole machine stood still, which is measured. No tolerance is chosen. Negative controls
run along: *a wrong limit* (ours, told 110 % of the limit) and *no limit*; a suite whose judge lets one of them pass
fails."""
