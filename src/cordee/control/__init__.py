"""Who runs a job: the supervisor, the agents on its nodes, how they launch tasks, the keeper."""
