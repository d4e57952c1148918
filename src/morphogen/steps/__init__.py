"""Pure steps of an epoch: (state, inputs) -> (state, outputs), without I/O, draws, or waits for the device.

For research code that composes its own loop.  In the order of an epoch:

    reset           fresh envs
    observe         state -> observation; masks are in `rules.legality`
    apply           `apply_action`: the effect of an action on the slots, GERMINATE and PRUNE included
    tick            automatic changes: cooling, alpha ramps, automatic gates
    init_seeds      parameters of germinated seeds; `reset.place_fossils` skips their lifecycles
    train           `start_epoch`, `train_minibatch`, `finish_epoch`
    validate        loss and accuracy under every coalition
    attribute       contributions from these accuracies
    govern          anomalies, rollback to the last healthy snapshot
    score           inputs of the reward rule, the reward, the end of the epoch
    whitebox_steps  training and validation of the white-box task, by formula

Every step traces with `torch.compile(fullgraph=True)`, runs on the meta device, and never writes to its input;
`morphogen.testing.laws.check_step` checks these promises for any step.
Loads torch.
"""
