"""A source in which each of several changes can be switched on while its program runs (scripts/lib/switch.h)."""

import re

BETWEEN = {
    "==": "EqualNot", "!=": "NotEqual", "<": "LessOr", "<=": "OrLess", ">": "MoreOr", ">=": "OrMore", "+": "PlusMinus",
    "-": "MinusPlus", "*": "TimesOver", "/": "OverTimes", "%": "RestOver",
}  # fmt: skip
ASSIGNING = {"+=": "AddTake", "-=": "TakeAdd", "*=": "ScaleDivide", "/=": "DivideScale", "|=": "SetKeep", "&=": "KeepSet"}
SPACE = "::keel_change::"
SUFFIX = re.compile(r"[uUlL]*")


def switch_of(number, change):
    """What stands in the changed token's place, with the column behind it; nothing where only a compiler of its own can
    try this change."""
    old, end = change.old, change.column + len(change.old)
    if old in BETWEEN:
        return f"{old} {SPACE}{BETWEEN[old]}<{number}>() {old}", end
    if old in ASSIGNING:
        return f"{old} {SPACE}{ASSIGNING[old]}<{number}>() {old}", end
    if old in ("|", "&"):
        return None  # the changed one binds otherwise
    if old in ("&&", "||"):
        both = "true" if old == "&&" else "false"
        return f"&& {SPACE}holds<{number}, {both}>() || {SPACE}goes_on<{number}, {both}>() &&", end
    if old == "!":
        return f"{SPACE}Not<{number}>() ->* ", end
    if old in ("++", "--"):
        is_prefix = re.match(r"[A-Za-z_(]", change.line[end:])
        return (f"{SPACE}Step<{number}, {'1' if old == '++' else '-1'}>() ->* ", end) if is_prefix else None
    if old in ("std::min", "std::max"):
        return f"{SPACE}Extreme<{number}, {'true' if old == 'std::min' else 'false'}>::of", end
    suffix = SUFFIX.match(change.line, end).group()  # of a number; true and false have none
    return f"({SPACE}on({number}) ? {change.new}{suffix} : {old}{suffix})", end + len(suffix)


def switched(text, changes):
    """The source with switches for `changes`, {number: change}, of which several of one number stand inside each other."""
    by_place = {}
    for number, change in changes.items():
        by_place.setdefault((change.number, change.column), []).append((number, change))
    lines = text.split("\n")
    for (row, column), several in sorted(by_place.items(), reverse=True):
        put, end = switch_of(*several[0])
        for number, change in several[1:]:
            other, _ = switch_of(number, change)
            put = other[: other.rindex(" : ") + 3] + put + ")"
        lines[row - 1] = lines[row - 1][:column] + put + lines[row - 1][end:]
    return "\n".join(lines)
