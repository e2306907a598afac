"""Search for the largest packet that passes in one direction, between 576 and 1500 bytes (IP packet, no fragments)."""

from __future__ import annotations

from station.plan import LARGEST_MTU, MTU_PROBE_BYTES, SMALLEST_MTU


class MtuSearch:
    """The largest size first, as it passes on most paths; then the smallest; then bisection. A packet may be lost for
    another reason, so the smallest failed size is tried again at the end."""

    def __init__(self) -> None:
        self.passed = 0
        self.is_refused = False  # the kernel rejected the last failed size: it knows a smaller MTU
        self._failed = LARGEST_MTU + 1
        self._is_certain = True  # of `_failed`
        self._asks_largest = True
        self._bytes_left = MTU_PROBE_BYTES

    @property
    def size(self) -> int:
        if self._asks_largest:
            return LARGEST_MTU
        if not self.passed and self._failed > SMALLEST_MTU:
            return SMALLEST_MTU
        return self._failed if self._is_narrow else (self.passed + self._failed) // 2

    @property
    def _is_narrow(self) -> bool:
        return self._failed <= max(self.passed + 1, SMALLEST_MTU)

    @property
    def is_over(self) -> bool:
        return (self._is_narrow and self._is_certain) or self._bytes_left < self.size

    def passes(self, size: int) -> None:
        """A packet of this size arrived at the other end."""
        self._took()
        self.passed = max(self.passed, size)
        if size >= self._failed:
            self._failed, self._is_certain = LARGEST_MTU + 1, True

    def no_answer(self) -> None:
        """The packet of `size` got no answer in time."""
        self._fails(is_certain=self._is_narrow and not self._asks_largest, is_refused=False)

    def too_large(self) -> None:
        """The kernel rejects the packet of `size`."""
        self._fails(is_certain=True, is_refused=True)

    def give_up(self) -> None:
        """Time is up: use what passed so far."""
        self._bytes_left = 0

    def _fails(self, *, is_certain: bool, is_refused: bool) -> None:
        size = self.size
        self._took()
        self._failed, self._is_certain, self.is_refused = size, is_certain, is_refused

    def _took(self) -> None:
        self._bytes_left -= self.size
        self._asks_largest = False
