"""The plots of the report, in its order."""

from morphogen.analysis.plots import acting, arm_plots, growing, learning, running, seed_plots, worth
from morphogen.analysis.plots.canvas import Plot

PLOTS: tuple[Plot, ...] = (
    learning.LEARNING,
    worth.COMPARISON,
    arm_plots.ARMS,
    arm_plots.PROFILES,
    worth.FRONTIER,
    growing.LIFECYCLE,
    seed_plots.CONTRIBUTIONS,
    seed_plots.BLUEPRINTS,
    acting.ACTIONS,
    acting.REWARDS,
    learning.PPO,
    worth.INSTANCES,
    running.HEALTH,
    running.THROUGHPUT,
)
