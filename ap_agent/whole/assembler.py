"""eBPF instructions by name, with labels: a small assembler (RFC 9669). Pure.

An instruction has 8 bytes: operation, registers (target in the low nibble, source in the high one), a signed offset of
16 bits and a signed number of 32 bits. Jumps count instructions from the one behind them. The address of a map takes
two slots, into which the kernel writes it where we name the map's file descriptor.

Nothing here is checked for safety: that is the verifier's business, whose words `bpf.load_program` passes on.
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass
from enum import IntEnum


class Register(IntEnum):
    """R0: what a call returns; R1 to R5: its arguments, lost in it; R6 to R9 stay; R10: the end of the stack."""

    R0 = 0
    R1 = 1
    R2 = 2
    R3 = 3
    R4 = 4
    R5 = 5
    R6 = 6
    R7 = 7
    R8 = 8
    R9 = 9
    R10 = 10


R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10 = Register


class Size(IntEnum):
    """Of a load or store: the bits 0x18 of its operation."""

    WORD = 0x00  # 4 bytes
    HALF = 0x08
    BYTE = 0x10
    DOUBLE = 0x18  # 8 bytes


class Condition(IntEnum):
    """Of a jump, on all 64 bits, without signs: the bits 0xf0 of its operation."""

    EQUAL = 0x10
    ABOVE = 0x20
    AT_LEAST = 0x30
    ANY_BIT = 0x40
    NOT_EQUAL = 0x50
    AT_MOST = 0xB0


_LD_IMM64, _LDX_MEM, _ST_MEM, _STX_MEM, _STX_ATOMIC = 0x18, 0x61, 0x62, 0x63, 0xC3
_ALU64, _JMP, _CALL, _EXIT, _TO_BIG_ENDIAN = 0x07, 0x05, 0x85, 0x95, 0xDC
_FROM_REGISTER = 0x08
_ADD, _SUB, _MUL, _OR, _AND, _LSH, _RSH, _XOR, _MOV = 0x00, 0x10, 0x20, 0x40, 0x50, 0x60, 0x70, 0xA0, 0xB0
_ATOMIC_ADD, _ATOMIC_COMPARE_EXCHANGE = 0x00, 0xF1
_PSEUDO_MAP_FD = 1  # in the source register of a constant of 64 bits: it is the descriptor of a map
_INSTRUCTION = struct.Struct("=BBhi")

Operand = Register | int


@dataclass(frozen=True)
class _Instruction:
    operation: int
    target: int = 0
    source: int = 0
    offset: int = 0
    number: int = 0
    goes_to: str | None = None  # a label, which becomes the offset

    def pack(self, offset: int) -> bytes:
        low, high = (self.target, self.source) if sys.byteorder == "little" else (self.source, self.target)
        signed = (self.number & 0xFFFF_FFFF ^ 0x8000_0000) - 0x8000_0000
        return _INSTRUCTION.pack(self.operation, low | high << 4, offset, signed)


class Assembler:
    """Instructions in the order in which the methods are called; `assemble` resolves the labels."""

    def __init__(self) -> None:
        self._instructions: list[_Instruction] = []
        self._labels: dict[str, int] = {}

    def assemble(self) -> bytes:
        """The program's bytes, in the machine's own order. Raises `ValueError` for a label that is nowhere."""
        return b"".join(one.pack(self._offset_of(index, one)) for index, one in enumerate(self._instructions))

    def _offset_of(self, index: int, one: _Instruction) -> int:
        if one.goes_to is None:
            return one.offset
        if one.goes_to not in self._labels:
            raise ValueError(f"instruction {index} jumps to {one.goes_to!r}, which is nowhere; place that label")
        return self._labels[one.goes_to] - index - 1

    def label(self, name: str) -> None:
        """Name the next instruction. Raises `ValueError` when another one has that name."""
        if name in self._labels:
            raise ValueError(f"the label {name!r} is already at instruction {self._labels[name]}; choose another name")
        self._labels[name] = len(self._instructions)

    # --- arithmetic, on 64 bits --------------------------------------------------------------------------------

    def move(self, target: Register, value: Operand) -> None:
        """target = value; a number is extended with its sign."""
        self._arithmetic(_MOV, target, value)

    def add(self, target: Register, value: Operand) -> None:
        self._arithmetic(_ADD, target, value)

    def subtract(self, target: Register, value: Operand) -> None:
        self._arithmetic(_SUB, target, value)

    def multiply(self, target: Register, value: Operand) -> None:
        self._arithmetic(_MUL, target, value)

    def and_(self, target: Register, value: Operand) -> None:
        self._arithmetic(_AND, target, value)

    def or_(self, target: Register, value: Operand) -> None:
        self._arithmetic(_OR, target, value)

    def xor(self, target: Register, value: Operand) -> None:
        self._arithmetic(_XOR, target, value)

    def shift_left(self, target: Register, bits: int) -> None:
        self._arithmetic(_LSH, target, bits)

    def shift_right(self, target: Register, bits: int) -> None:
        """Zeros come in from the left."""
        self._arithmetic(_RSH, target, bits)

    def from_network_order(self, target: Register, bits: int) -> None:
        """Of a number of 16, 32 or 64 bits as it stood in a packet; what is above them becomes 0."""
        self._put(_Instruction(_TO_BIG_ENDIAN, target, number=bits))

    def _arithmetic(self, operation: int, target: Register, value: Operand) -> None:
        if isinstance(value, Register):
            self._put(_Instruction(_ALU64 | operation | _FROM_REGISTER, target, value))
        else:
            self._put(_Instruction(_ALU64 | operation, target, number=value))

    # --- memory ------------------------------------------------------------------------------------------------

    def load(self, size: Size, target: Register, base: Register, offset: int) -> None:
        """target = what is at base + offset, without a sign."""
        self._put(_Instruction(_LDX_MEM | size, target, base, offset))

    def store(self, size: Size, base: Register, offset: int, value: Operand) -> None:
        if isinstance(value, Register):
            self._put(_Instruction(_STX_MEM | size, base, value, offset))
        else:
            self._put(_Instruction(_ST_MEM | size, base, offset=offset, number=value))

    def atomic_add(self, base: Register, offset: int, value: Register) -> None:
        """8 bytes at base + offset += value, whoever else writes there."""
        self._put(_Instruction(_STX_ATOMIC | Size.DOUBLE, base, value, offset, _ATOMIC_ADD))

    def compare_exchange(self, base: Register, offset: int, value: Register) -> None:
        """If the 8 bytes at base + offset are R0, they become `value`; R0 is what they were (Linux 5.12)."""
        self._put(_Instruction(_STX_ATOMIC | Size.DOUBLE, base, value, offset, _ATOMIC_COMPARE_EXCHANGE))

    def load_map(self, target: Register, map_fd: int) -> None:
        """target = the address of a map."""
        self._put(_Instruction(_LD_IMM64, target, _PSEUDO_MAP_FD, number=map_fd))
        self._put(_Instruction(0))

    # --- where to go on ----------------------------------------------------------------------------------------

    def jump(self, label: str) -> None:
        self._put(_Instruction(_JMP, goes_to=label))

    def jump_if(self, left: Register, condition: Condition, right: Operand, label: str) -> None:
        """A number as `right` is extended with its sign."""
        if isinstance(right, Register):
            self._put(_Instruction(_JMP | condition | _FROM_REGISTER, left, right, goes_to=label))
        else:
            self._put(_Instruction(_JMP | condition, left, number=right, goes_to=label))

    def call(self, helper: int) -> None:
        """A function of the kernel (bpf-helpers(7)) by its number."""
        self._put(_Instruction(_CALL, number=helper))

    def exit(self) -> None:
        """The program's answer is in R0."""
        self._put(_Instruction(_EXIT))

    def _put(self, one: _Instruction) -> None:
        self._instructions.append(one)
