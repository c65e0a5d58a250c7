"""Notices: mail, a webhook or a command when a run has ended.

`examine` takes `[notify]` of the job into the plan; `node.notice` fills the port `ended/notices` of the supervisor, which calls it once the end
of the run is in its journal. What was sent, or why not, is an event of the journal. At most one notice for each run: a test's, a step's that
failed, the job's.
"""
