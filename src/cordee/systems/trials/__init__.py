"""Many tasks in one allocation: farms of commands.

What a run of this kind does is not one group of ranks, but a list of tasks. `read` and `keep` copy the list into the run's folder;
on each node a pool (`node.pool`, a launch of the agent) takes the place of the ranks and starts tasks as the node has slots for them;
beside the lead of the run a dispatcher (`node.dispatcher`, a watcher of the supervisor) gives tasks to pools and keeps the journal
of the tasks, which is the truth about them. All else, vetting, leases, fencing, chains, logs, is the run's.
"""
