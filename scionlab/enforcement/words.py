"""The states of a Link: word, colour and explanation of each.

Used by pages, cockpit, mails and the texts of the REST API. The command line client is a separate package: it prints
the API's code, which is the word in lower case.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from scionlab.web.admin.columns import Tone

State = Literal["inactive", "waiting", "delivered", "enforced", "clamped", "blocked", "failed", "no_report", "observed"]
# A colour of the style sheets (.tone-*, .slb-*).


class Word(NamedTuple):
    word: str
    tone: Tone
    explanation: str


# In the order in which pages count and sort them: most urgent first.
WORDS: Final[dict[State, Word]] = {
    "failed": Word("Failed", "bad", "The attachment point does not enforce the limit. The reason is given beside it."),
    "no_report": Word(
        "No report", "warn", "The attachment point has stopped reporting. The last known limit is shown."
    ),
    "waiting": Word("Waiting", "info", "The limit is saved. The attachment point has not fetched it yet."),
    "delivered": Word("Delivered", "info", "The attachment point has fetched the limit and has not confirmed it."),
    "observed": Word("Observed", "warn", "The link is measured. Nothing is limited."),
    "clamped": Word("Clamped", "good", "More is requested than the maximum, so the maximum is enforced."),
    "blocked": Word("Blocked", "good", "The limit is 0: nothing passes."),
    "enforced": Word("Enforced", "good", "The attachment point confirmed the limit, read back from its kernel."),
    "inactive": Word("Inactive", "quiet", "The link is in no configuration."),
}
NOT_IN_FORCE: Final[tuple[State, ...]] = ("failed", "no_report", "waiting", "delivered", "observed")
