"""White box: tasks whose accuracy is a formula, so that the best policy is known.

The accuracy of an env depends on its instance, the blueprints of its seeds and when they were
germinated.  Nothing is trained, an epoch takes milliseconds, and the highest return of every
instance can be computed: the share of it that a policy reaches is a test of the complete learner.

- `whitebox_tasks`: `whitebox`, `negative` (growth never pays) and `whitebox_regimes`, and the
  defaults of their runs
- `whitebox_kind`: the task kind, which brings its own train and validate
- `formula`, `formula_steps`: the accuracy, and the steps in the place of training and validation
- `growth_plan`: the best plan in a world with regimes, by dynamic programming
- `optimal_policies`, `optimum`: the policy `optimal`, and the best returns

Plugs in at the entry points `morphogen.tasks`, `morphogen.kinds` and `morphogen.policies`.
`whitebox_regimes` needs the extra `regimes`; the others do not.

Importing the package loads no torch; its modules do, but for `whitebox_tasks`.
"""
