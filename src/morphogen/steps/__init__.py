"""Pure steps of an epoch: (state, inputs) -> (state, outputs), without I/O, draws, or waits for the device.

For research code that composes its own loop.  In the order of an epoch:

    reset           fresh envs; `init_seeds`: parameters of germinated seeds; `place_fossils` skips their lifecycles
    observe         state -> observation; masks are in `rules.legality`
    apply           `apply_action`: the effect of an action on the slots, GERMINATE and PRUNE included
    tick            automatic changes: cooling, alpha ramps, automatic gates
    train           `start_epoch`, `train_minibatch`, `finish_epoch`
    validate        loss and accuracy under every coalition
    govern          anomalies, rollback to the last healthy snapshot
    score           `attribute`: contributions from these accuracies; the reward and its inputs, the end of the epoch
    whitebox_steps  training and validation of the white-box task, by formula

Every step traces with `torch.compile(fullgraph=True)`, runs on the meta device, and never writes to its input;
`morphogen.testing.laws.check_step` checks these promises for any step.
Loads torch.
"""
