"""A recipe inside verl: what is written for it, and the parts of brorl that run in its processes.

`plugin` and `grading` run there; `overrides` and `export` write. Only `reward_manager` imports verl at the top.
"""
