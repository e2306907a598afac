"""ISD-AS numbers as text: `17-ffaa:1:b6`. Pure.

An AS number has 48 bits, written as three groups of 1 to 4 *hexadecimal* digits (DOMAIN section 1). From the tenth user
AS on the last group may have letters; it is never read as decimal.
"""

import re

from bandwidth_config import RuleError

MAX_ISD = 0xFFFF
MAX_AS_ID = 0xFFFF_FFFF_FFFF
FIRST_USER_AS_ID = 0xFFAA_0001_0001  # ffaa:1:1
LAST_USER_AS_ID = 0xFFAA_0001_FFFF  # ffaa:1:ffff

_GROUP = r"[0-9a-fA-F]{1,4}"
_AS_PATTERN = re.compile(rf"({_GROUP}):({_GROUP}):({_GROUP})", flags=re.ASCII)
_REMEDY = 'Write three groups of 1 to 4 hexadecimal digits, like "ffaa:1:b6".'


def parse_as_id(text: str) -> int:
    """`ffaa:1:b6` -> number, letters in either case. Raises `RuleError` (`as_id_invalid`, `as_id_zero`)."""
    match = _AS_PATTERN.fullmatch(text.strip())
    if match is None:
        shown = text if len(text) <= 40 else text[:37] + "..."
        raise RuleError("as_id_invalid", f'"{shown}" is not an AS id. {_REMEDY}')
    high, middle, low = (int(group, 16) for group in match.groups())
    as_id = high << 32 | middle << 16 | low
    if as_id == 0:
        raise RuleError("as_id_zero", f"AS id 0:0:0 is reserved: it means any AS. {_REMEDY}")
    return as_id


def format_as_id(as_id: int) -> str:
    """Number -> `ffaa:1:b6`, lower case without leading zeros. Raises `RuleError` (`as_id_range`)."""
    if not 0 <= as_id <= MAX_AS_ID:
        raise RuleError("as_id_range", f"AS number {as_id} is outside 0 to {MAX_AS_ID} (48 bits). {_REMEDY}")
    return f"{as_id >> 32:x}:{as_id >> 16 & 0xFFFF:x}:{as_id & 0xFFFF:x}"


def parse_isd_as(text: str) -> tuple[int, int]:
    """`17-ffaa:1:b6` or `17-ffaa_1_b6` -> (17, number). Raises `RuleError` (`isd_as_invalid`, and those of
    `parse_as_id`)."""
    isd, dash, as_text = text.strip().partition("-")
    if not dash or not re.fullmatch(r"[1-9][0-9]{0,4}", isd, flags=re.ASCII) or int(isd) > MAX_ISD:
        shown = text if len(text) <= 40 else text[:37] + "..."
        raise RuleError(
            "isd_as_invalid",
            f'"{shown}" is not an ISD-AS. Write the ISD from 1 to {MAX_ISD}, "-", and the AS: 17-ffaa:1:b6.',
        )
    return int(isd), parse_as_id(as_text.replace("_", ":"))


def format_isd_as(isd: int, as_id: int) -> str:
    """(17, number) -> `17-ffaa:1:b6`."""
    return f"{isd}-{format_as_id(as_id)}"


def file_name_part(isd_as: str) -> str:
    """`17-ffaa:1:b6` -> `17-ffaa_1_b6`, SCION's form in file names."""
    return isd_as.replace(":", "_")
