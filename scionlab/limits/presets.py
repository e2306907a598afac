"""Presets with the nominal bandwidths of well-known links.

Bandwidth only: delay and loss are not emulated. Sources are in docs/domain.md section 2.
"""

from __future__ import annotations

from dataclasses import dataclass

from bandwidth_config import Limits


@dataclass(frozen=True)
class Preset:
    """A link from its user's perspective: downstream goes to the user AS, upstream comes from it [kbit/s]."""

    key: str
    name: str
    to_user_kbit: int
    from_user_kbit: int

    @property
    def limits(self) -> Limits:
        return Limits(self.to_user_kbit, self.from_user_kbit)

    def fits(self, maximum_kbit: int) -> bool:
        return max(self.limits) <= maximum_kbit


# Rounded down to whole kbit/s.
PRESETS = (
    Preset("modem", "Dial-up modem (V.92)", 56, 48),
    Preset("isdn", "ISDN, one channel", 64, 64),
    Preset("isdn2", "ISDN, two channels", 128, 128),
    Preset("gprs", "GPRS, class 10", 85, 21),
    Preset("edge", "EDGE, class 10", 236, 59),
    Preset("umts", "3G (UMTS)", 384, 64),
    Preset("hspa", "3G (HSPA 7.2)", 7_200, 2_000),
    Preset("satphone", "Satellite, BGAN", 492, 492),
    Preset("satellite", "Satellite, Certus 700", 704, 352),
    Preset("e1", "Leased line (E1)", 2_048, 2_048),
    Preset("adsl", "DSL (ADSL)", 6_144, 640),
    Preset("adsl2", "DSL (ADSL2+)", 16_000, 800),
    Preset("lte1", "LTE, category 1", 10_000, 5_000),
    Preset("lte4", "LTE, category 4", 150_000, 50_000),
    Preset("ethernet", "Ethernet (10BASE-T)", 10_000, 10_000),
    Preset("fast-ethernet", "Fast Ethernet", 100_000, 100_000),
)
BY_KEY = {preset.key: preset for preset in PRESETS}


def offered(maximum_kbit: int) -> tuple[list[Preset], list[Preset]]:
    """Presets within this maximum, and those above it; slowest first."""
    ordered = sorted(PRESETS, key=lambda preset: (max(preset.limits), preset.from_user_kbit))
    return [one for one in ordered if one.fits(maximum_kbit)], [one for one in ordered if not one.fits(maximum_kbit)]
