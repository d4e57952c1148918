"""Padding: the sizes of a plan rounded up to a few, so that few graphs serve all plans."""

from collections.abc import Iterable, Sequence

from morphogen.nets.plan import Plan, SlotPlan, build_slot_plan
from morphogen.vocab.blueprint import Blueprint

_WIDTH = 2 * len(Blueprint) - 1  # numbers that describe a crew
_GATES = 0  # the first of them
_SHARE = 8  # one env in so many has room to spare


def bucket(rows: int, envs: int) -> int:
    """The smallest size of 0, 1, 2, 4 .. envs, 2 envs, 4 envs .. that has room for so many rows."""
    if rows > envs:
        return envs * _next_power_of_two(-(-rows // envs))
    return min(_next_power_of_two(rows), envs)


def _next_power_of_two(number: int) -> int:
    """The smallest power of two that is not smaller; 0 for 0."""
    return 1 << (number - 1).bit_length() if number else 0


def pad_plan(plan: Plan, envs: int) -> Plan:
    """The plan with every size at its bucket, and room to spare.  Padding changes results by rounding only.

    Which kinds of seeds grow differs less from plan to plan than where they do.  So a kind that is anywhere has room
    everywhere: in every slot, under every algorithm, in training and in validation, for one env in eight; and gates,
    which come late, wherever anything grows.  Where nothing grows there is room for nothing.
    """
    spare = max(1, envs // _SHARE)
    sizes = [capacity(crews) for crews in (plan.train, plan.evaluate)]
    kinds = {_row_kind(at) for numbers in sizes for at, rows in enumerate(numbers) if rows}
    least = tuple(spare if kinds and _row_kind(at) in {_GATES, *kinds} else 0 for at in range(len(sizes[0])))
    train, evaluate = (build_slot_plans(_bucket_all(map(max, numbers, least), envs)) for numbers in sizes)
    rows = [max(count, envs + spare) if kinds else count for count in plan.rows]
    return Plan(train, evaluate, _bucket_all(plan.births, envs), _bucket_all(rows, envs), padded=True)


def _row_kind(at: int) -> int:
    """What a number of `room` counts, the gates or a blueprint, in whatever slot and half."""
    return (at % _WIDTH + 1) // 2


def _bucket_all(sizes: Iterable[int], envs: int) -> tuple[int, ...]:
    return tuple(bucket(size, envs) for size in sizes)


def join_plans(plans: Sequence[Plan]) -> Plan:
    """The smallest plan with room for all of them."""
    return Plan(
        train=build_slot_plans(_elementwise_max([capacity(plan.train) for plan in plans])),
        evaluate=build_slot_plans(_elementwise_max([capacity(plan.evaluate) for plan in plans])),
        births=_elementwise_max([plan.births for plan in plans]),
        rows=_elementwise_max([plan.rows for plan in plans]),
        padded=True,
    )


def _elementwise_max(sizes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(map(max, zip(*sizes, strict=True)))


def capacity(plans: tuple[SlotPlan, ...]) -> tuple[int, ...]:
    """The sizes of crews as numbers that can be compared: per slot gates, then added and multiplied per blueprint."""
    found: list[int] = []
    for crew in plans:
        halves = {group.blueprint: (group.added, group.multiplied) for group in crew.groups}
        found += [crew.gates, *(half for b in Blueprint if b is not Blueprint.NOOP for half in halves.get(b, (0, 0)))]
    return tuple(found)


def build_slot_plans(numbers: Sequence[int]) -> tuple[SlotPlan, ...]:
    """The inverse of `room`."""
    return tuple(_build_slot_plan(numbers[at : at + _WIDTH]) for at in range(0, len(numbers), _WIDTH))


def _build_slot_plan(numbers: Sequence[int]) -> SlotPlan:
    halves = zip(numbers[1::2], numbers[2::2], strict=True)
    return build_slot_plan(numbers[0], dict(zip(list(Blueprint)[1:], halves, strict=True)))
