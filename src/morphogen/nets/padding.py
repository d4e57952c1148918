"""Padding: sizes of a plan rounded up to few values, so that few compiled graphs serve all plans."""

from collections.abc import Iterable, Sequence

from morphogen.nets.plan import Plan, SlotPlan, build_slot_plan
from morphogen.vocab.blueprint import Blueprint

_WIDTH = 2 * len(Blueprint) - 1  # numbers of a slot plan
_GATES = 0  # the first of them
_SPARE_SHARE = 8  # spare capacity for one env in eight


def bucket(rows: int, envs: int) -> int:
    """Return the smallest size of 0, 1, 2, 4 .. envs, 2 envs, 4 envs .. with capacity for these rows."""
    if rows > envs:
        return envs * _next_power_of_two(-(-rows // envs))
    return min(_next_power_of_two(rows), envs)


def _next_power_of_two(number: int) -> int:
    """Smallest power of two that is not smaller; 0 for 0."""
    return 1 << (number - 1).bit_length() if number else 0


def pad_plan(plan: Plan, envs: int) -> Plan:
    """Return the plan with every size at its bucket, and spare capacity.  Padding changes results by rounding only.

    From plan to plan, the kinds of seeds change less than their places.  So a kind that occurs anywhere gets capacity
    everywhere: in every slot, under every algorithm, in training and in validation, for one env in eight.  Gates, which
    come late, get capacity wherever anything grows.  A plan without seeds gets none.
    """
    spare = max(1, envs // _SPARE_SHARE)
    sizes = [capacity(plans) for plans in (plan.train, plan.evaluate)]
    kinds = {_row_kind(at) for numbers in sizes for at, rows in enumerate(numbers) if rows}
    least = tuple(spare if kinds and _row_kind(at) in {_GATES, *kinds} else 0 for at in range(len(sizes[0])))
    train, evaluate = (build_slot_plans(_bucket_all(map(max, numbers, least), envs)) for numbers in sizes)
    rows = [max(count, envs + spare) if kinds else count for count in plan.rows]
    return Plan(train, evaluate, _bucket_all(plan.births, envs), _bucket_all(rows, envs), padded=True)


def _row_kind(at: int) -> int:
    """Kind of a number of `capacity`, the gates or a blueprint, for any slot and half."""
    return (at % _WIDTH + 1) // 2


def _bucket_all(sizes: Iterable[int], envs: int) -> tuple[int, ...]:
    return tuple(bucket(size, envs) for size in sizes)


def join_plans(plans: Sequence[Plan]) -> Plan:
    """Return the smallest plan with capacity for all of these plans."""
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
    """Return the sizes of slot plans as comparable numbers: per slot gates, then added, multiplied per blueprint."""
    sizes: list[int] = []
    for plan in plans:
        halves = {group.blueprint: (group.added, group.multiplied) for group in plan.groups}
        sizes += [plan.gates, *(half for b in Blueprint if b is not Blueprint.NOOP for half in halves.get(b, (0, 0)))]
    return tuple(sizes)


def build_slot_plans(numbers: Sequence[int]) -> tuple[SlotPlan, ...]:
    """Return the slot plans of these sizes, the inverse of `capacity`."""
    plans = []
    for at in range(0, len(numbers), _WIDTH):
        gates, *sizes = numbers[at : at + _WIDTH]
        halves = zip(sizes[::2], sizes[1::2], strict=True)
        plans.append(build_slot_plan(gates, dict(zip(list(Blueprint)[1:], halves, strict=True))))
    return tuple(plans)
