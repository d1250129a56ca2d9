# A schedule is made first: the class itself is none.
from pullback.relax.training import lr_schedule, optimizer


def mistake():
    optimizer.Adam(lr_schedule.CosineAnnealingLR)
