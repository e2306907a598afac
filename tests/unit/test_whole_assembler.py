"""The assembler writes what RFC 9669 says, beside encodings that clang and the kernel's own tests use."""

from __future__ import annotations

import re

import pytest

from ap_agent.whole.assembler import R0, R1, R2, R3, R6, R7, R10, Assembler, Condition, Size

# Each line: what is called, and its bytes on a little-endian machine (operation, registers, offset, number).
KNOWN = [
    (lambda code: code.move(R0, 0), "b7 00 0000 00000000"),
    (lambda code: code.move(R0, -1), "b7 00 0000 ffffffff"),
    (lambda code: code.move(R6, R1), "bf 16 0000 00000000"),
    (lambda code: code.add(R2, -40), "07 02 0000 d8ffffff"),
    (lambda code: code.add(R1, R2), "0f 21 0000 00000000"),
    (lambda code: code.subtract(R3, R7), "1f 73 0000 00000000"),
    (lambda code: code.multiply(R2, R3), "2f 32 0000 00000000"),
    (lambda code: code.or_(R1, 2), "47 01 0000 02000000"),
    (lambda code: code.and_(R1, 63), "57 01 0000 3f000000"),
    (lambda code: code.shift_left(R2, 3), "67 02 0000 03000000"),
    (lambda code: code.shift_right(R2, 20), "77 02 0000 14000000"),
    (lambda code: code.xor(R1, R2), "af 21 0000 00000000"),
    (lambda code: code.from_network_order(R2, 16), "dc 02 0000 10000000"),
    (lambda code: code.from_network_order(R1, 32), "dc 01 0000 20000000"),
    (lambda code: code.load(Size.WORD, R1, R6, 16), "61 61 1000 00000000"),
    (lambda code: code.load(Size.HALF, R2, R10, -34), "69 a2 deff 00000000"),
    (lambda code: code.load(Size.BYTE, R2, R10, -31), "71 a2 e1ff 00000000"),
    (lambda code: code.load(Size.DOUBLE, R0, R7, 8), "79 70 0800 00000000"),
    (lambda code: code.store(Size.DOUBLE, R10, -72, 0), "7a 0a b8ff 00000000"),
    (lambda code: code.store(Size.WORD, R10, -64, R1), "63 1a c0ff 00000000"),
    (lambda code: code.store(Size.DOUBLE, R10, -8, R1), "7b 1a f8ff 00000000"),
    (lambda code: code.atomic_add(R7, 16, R1), "db 17 1000 00000000"),
    (lambda code: code.compare_exchange(R7, 0, R1), "db 17 0000 f1000000"),
    (lambda code: code.load_map(R1, 5), "18 11 0000 05000000 00 00 0000 00000000"),
    (lambda code: code.call(1), "85 00 0000 01000000"),
    (lambda code: code.exit(), "95 00 0000 00000000"),
]


@pytest.mark.parametrize(("write", "expected"), KNOWN, ids=[words for _, words in KNOWN])
def test_an_instruction_has_its_known_bytes(write: object, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.byteorder", "little")
    code = Assembler()
    write(code)  # type: ignore[operator]
    assert code.assemble() == bytes.fromhex(expected)


@pytest.mark.parametrize(
    ("condition", "operation"),
    [
        (Condition.EQUAL, 0x15),
        (Condition.ABOVE, 0x25),
        (Condition.AT_LEAST, 0x35),
        (Condition.ANY_BIT, 0x45),
        (Condition.NOT_EQUAL, 0x55),
        (Condition.AT_MOST, 0xB5),
    ],
)
def test_conditions_compare_without_signs(condition: Condition, operation: int) -> None:
    code = Assembler()
    code.jump_if(R1, condition, 7, "end")
    code.jump_if(R1, condition, R2, "end")
    code.label("end")
    assert code.assemble()[0] == operation
    assert code.assemble()[8] == operation | 0x08


def test_labels_count_from_the_next_instruction_both_ways() -> None:
    code = Assembler()
    code.label("start")
    code.jump_if(R1, Condition.EQUAL, 0, "end")
    code.load_map(R1, 3)  # two slots
    code.jump("start")
    code.label("end")
    code.exit()
    packed = code.assemble()
    offsets = [int.from_bytes(packed[at + 2 : at + 4], "little", signed=True) for at in (0, 24)]
    assert offsets == [3, -4]


def test_big_endian_machines_have_the_registers_the_other_way_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.byteorder", "big")
    code = Assembler()
    code.move(R6, R1)
    assert code.assemble()[1] == 0x61


def test_a_label_that_is_nowhere_or_twice_is_an_error_that_names_it() -> None:
    code = Assembler()
    code.jump("away")
    with pytest.raises(ValueError, match=re.escape("instruction 0 jumps to 'away', which is nowhere")):
        code.assemble()
    code.label("here")
    with pytest.raises(ValueError, match=re.escape("'here' is already at instruction 1")):
        code.label("here")
