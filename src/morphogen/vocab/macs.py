"""Multiply-accumulates per sample of hosts and blueprints: of convolutions and linear layers, in closed form."""

from morphogen.vocab.blueprint import Blueprint, attention_width, bottleneck_width
from morphogen.vocab.slot import CnnSpec, SlotSpec


def host_macs(host: CnnSpec) -> int:
    """Of a host at full width."""
    total, size, before = 0, host.size, host.channels_in
    for i, channels in enumerate(host.channels):
        total += host.kernel**2 * before * channels * size**2
        size //= 2 if i < host.pools else 1
        before = channels
    return total + before * host.classes


def seed_macs(blueprint: Blueprint, slot: SlotSpec) -> int:
    """Of a CNN blueprint in a slot, its gate network left out."""
    c, r, q = slot.channels, attention_width(slot.channels), bottleneck_width(slot.channels)
    per_pixel = {
        Blueprint.CONV_LIGHT: 9 * c * c,
        Blueprint.DEPTHWISE: 9 * c + c * c,
        Blueprint.BOTTLENECK: 2 * c * q + 9 * q * q,
        Blueprint.CONV_SMALL: c * c,
        Blueprint.CONV_HEAVY: 18 * c * c,
    }
    pooled = 2 * c * r if blueprint is Blueprint.ATTENTION else 0
    return per_pixel.get(blueprint, 0) * slot.height * slot.width + pooled
