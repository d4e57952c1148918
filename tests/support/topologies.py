"""Blueprints of the two families of hosts in recorded rows."""

from morphogen.vocab.blueprint import assign_codes

TOPOLOGIES = {
    "cnn": "conv_light attention norm depthwise bottleneck conv_small conv_heavy",
    "transformer": "attention norm lora lora_large mlp_small mlp flex_attention",
}
KINDS = {name: assign_codes(blueprints.split()) for name, blueprints in TOPOLOGIES.items()}
