"""Archetypes: scripted growth policies on synthetic learning curves, to compare reward rules.

The host learns along one curve; a seed gains skill along another and adds it times its alpha.  So
everything that a rule may ask is known without training, and rules can be compared by the order
into which they put eleven policies: one that grows what helps, one that waits, one that keeps what
harms, one that the governor stops.

- `scripted_policies`: the policies, the reward inputs of every step of their lives, and the
  discounted return of each under a rule
- `rewards_command`: the command `morphogen rewards`, a table of the rules, installed packages
  included, and of these returns

A rule that cannot be used is listed with its fault and stops no other.

Plugs in at: the group of entry points `morphogen.commands`.  The package and the command load no
torch before they are used; `scripted_policies` does.
"""

from morphogen.cli.command_table import Command

COMMAND = Command(
    "list the reward rules and compare what they pay",
    "morphogen.extras.archetypes.rewards_command",
)
