"""The plots of the report, in its order."""

from morphogen.run.plots import acting, growing, learning, running, seeds, worth
from morphogen.run.plots.canvas import Plot

PLOTS: tuple[Plot, ...] = (
    learning.LEARNING,
    worth.COMPARISON,
    worth.FRONTIER,
    growing.LIFECYCLE,
    seeds.CONTRIBUTIONS,
    seeds.BLUEPRINTS,
    acting.ACTIONS,
    acting.REWARDS,
    learning.PPO,
    worth.INSTANCES,
    running.HEALTH,
    running.THROUGHPUT,
)
