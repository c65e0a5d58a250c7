/* The plugin on a node: one container for a step, which its tasks join. cordee.c says which hook does what. */
#include "cordee.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#define END_MS 15000

static struct {
	bool failed;
	bool joined;
	bool batch;
	int socket; /* to what holds the container */
	int startup; /* in memory: what the start-up commands left, complete once it is sealed */
	int words;   /* in memory: what what holds it, and the start-up commands, print */
	int mount_ns, user_ns;
	pid_t stepd;
	char *records; /* what it said, NUL-terminated records */
	size_t size;
} container = {false, false, false, -1, -1, -1, -1, -1, 0, NULL, 0};

static const char *node_name(void)
{
	static char name[256];
	const char *given = getenv("SLURMD_NODENAME");

	if (given)
		return given;
	gethostname(name, sizeof(name) - 1);
	return name;
}

static const char *find(char **environment, const char *name)
{
	size_t length = strlen(name);

	for (; environment && *environment; environment++)
		if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=')
			return *environment + length + 1;
	return NULL;
}

/* Return whether `data`, with a NUL byte if `end`, went through before the deadline. */
static bool send_text(int to, const char *data, bool end, time_t deadline)
{
	size_t left = strlen(data) + (end ? 1 : 0);

	while (left > 0) {
		struct pollfd wait = {to, POLLOUT, 0};
		ssize_t sent = send(to, data, left, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent > 0) {
			data += sent;
			left -= sent;
		} else if (errno != EAGAIN && errno != EINTR)
			return false;
		else if (time(NULL) > deadline)
			return false;
		else
			poll(&wait, 1, 1000);
	}
	return true;
}

/* Read records until an empty one; the size read, 0 at an early end or after the deadline. */
static size_t receive(int from, char **data, time_t deadline)
{
	size_t size = 0, room = 65536;

	*data = malloc(room);
	while (*data && time(NULL) <= deadline) {
		struct pollfd wait = {from, POLLIN, 0};
		if (poll(&wait, 1, 1000) < 1)
			continue;
		ssize_t got = recv(from, *data + size, room - size, 0);
		if (got == 0 || (got < 0 && errno != EINTR))
			return 0;
		size += got > 0 ? got : 0;
		if (size > 1 && (*data)[size - 1] == '\0' && (*data)[size - 2] == '\0')
			return size;
		if (size == room)
			*data = realloc(*data, room *= 2);
	}
	return 0;
}

/* Return what follows `key` in the first record that begins with it, NULL when there is none. */
static const char *answer(const char *key)
{
	const char *end = container.records + container.size;

	for (const char *record = container.records; record < end; record += strlen(record) + 1)
		if (strncmp(record, key, strlen(key)) == 0)
			return record + strlen(key);
	return NULL;
}

static void close_all_above(int last)
{
#ifdef SYS_close_range
	if (syscall(SYS_close_range, last + 1, ~0U, 0) == 0)
		return;
#endif
	for (int descriptor = last + 1; descriptor < 65536; descriptor++)
		close(descriptor);
}

/* Become the user for good: the effective user is set already, root is only what slurmstepd could go back to. */
static void start_holder(int end, uid_t uid, gid_t gid)
{
	static char node[300];
	char *environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", node, NULL};
	sigset_t none;

	setsid();
	if (fork() != 0) /* slurmstepd collects every child it has, and shall not meet this one */
		_exit(0);
	if (setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
		_exit(EXIT_ENGINE);
	snprintf(node, sizeof(node), "SLURMD_NODENAME=%s", node_name());
	dup2(end, 0);
	dup2(end, 1);
	dup2(container.words, 2);
	dup2(container.startup, 3);
	fcntl(3, F_SETFD, 0); /* it may have had this number before */
	close_all_above(3);
	/* slurmstepd may be spared when memory runs out; what serves files to tasks is not. */
	if ((end = open("/proc/self/oom_score_adj", O_WRONLY)) >= 0) {
		dprintf(end, "0");
		close(end);
	}
	for (int number = 1; number < 32; number++)
		signal(number, SIG_DFL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (chdir("/") < 0)
		_exit(EXIT_ENGINE);
	run_module(site.node_python ? site.node_python : site.python, site.node_package ? site.node_package : site.package,
		   "cordee.systems.environments.node.spank.hold", NULL, environment);
}

static bool ask(char **environment, const char *script, time_t deadline)
{
	char name[64];
	const char *part;

	if (script && (!send_text(container.socket, "script=", false, deadline) ||
		       !send_text(container.socket, script, true, deadline)))
		return false;
	if (site.bind && (!send_text(container.socket, "bind=", false, deadline) ||
			  !send_text(container.socket, site.bind, true, deadline)))
		return false;
	/* Start-up commands run in the job's environment. */
	for (char **entry = environment; entry && *entry; entry++)
		if (!send_text(container.socket, "variable=", false, deadline) || !send_text(container.socket, *entry, true, deadline))
			return false;
	if (!send_text(container.socket, "document=", false, deadline))
		return false;
	for (int i = 0; i < MAX_CHUNKS; i++) {
		chunk_name(name, sizeof(name), i);
		if (!(part = find(environment, name)))
			break;
		if (!send_text(container.socket, part, false, deadline))
			return false;
	}
	return send_text(container.socket, "", true, deadline) && send_text(container.socket, "go=", true, deadline);
}

/* Open the namespaces of what holds the container; return the text of a failure, NULL when there is none. */
static const char *open_namespaces(void)
{
	const char *error = answer("error "), *pid = answer("pid="), *user = answer("user=");
	char path[64];

	if (error || !pid || !user)
		return error ? error : "the engine gave no process of it";
	snprintf(path, sizeof(path), "/proc/%.20s/ns/mnt", pid);
	if ((container.mount_ns = open(path, O_RDONLY | O_CLOEXEC)) < 0)
		return "its namespace of mounts cannot be opened";
	snprintf(path, sizeof(path), "/proc/%.20s/ns/user", pid);
	if (*user == '1' && (container.user_ns = open(path, O_RDONLY | O_CLOEXEC)) < 0)
		return "its namespace of users cannot be opened";
	return NULL;
}

/* Start what holds the container and hear what it says; words on the step's standard error when there is none. */
static void hold(char **environment, const char *script)
{
	int ends[2], status;
	time_t deadline = time(NULL) + site.timeout_s;
	char last[2000] = "";
	const char *problem;

	container.words = memfd_create("words", MFD_CLOEXEC);
	container.startup = memfd_create("startup", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (container.words < 0 || container.startup < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
		slurm_error("cordee: node %s: %s", node_name(), strerror(errno));
		container.failed = true;
		return;
	}
	container.stepd = getpid();
	container.socket = ends[0];
	pid_t child = fork();
	if (child == 0)
		start_holder(ends[1], geteuid(), getegid());
	close(ends[1]);
	if (child > 0)
		waitpid(child, &status, 0);
	if (child > 0 && ask(environment, script, deadline))
		container.size = receive(container.socket, &container.records, deadline);
	if (container.size > 0)
		problem = open_namespaces();
	else if (time(NULL) > deadline)
		problem = "it was not there in time (timeout_s= of plugstack.conf)";
	else
		problem = pread(container.words, last, sizeof(last) - 1, 0) > 0 ? last : "what starts it ended without a word";
	container.failed = problem != NULL;
	container.joined = problem == NULL;
	if (problem)
		slurm_error("cordee: node %s: no container: %s", node_name(), problem);
	for (const char *record = container.records; record && record < container.records + container.size; record += strlen(record) + 1)
		if (strncmp(record, "say=", 4) == 0)
			slurm_spank_log("cordee: node %s: %s", node_name(), record + 4);
}

int slurm_spank_user_init(spank_t spank, int count, char **words)
{
	char **environment = NULL, **argv = NULL;
	uint32_t step = 0;
	int argc = 0;

	(void)count, (void)words;
	if (spank_get_item(spank, S_JOB_ENV, &environment) != ESPANK_SUCCESS || !find(environment, CARRIED))
		return 0;
	if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS)
		return 0;
	/* The shell that salloc opens on a node stays outside, like one that it opens where it is called. */
	if (step == SLURM_EXTERN_CONT || step == SLURM_INTERACTIVE_STEP)
		return 0;
	spank_get_item(spank, S_JOB_ARGV, &argc, &argv);
	container.batch = step == SLURM_BATCH_SCRIPT;
	if (site.inert) {
		container.failed = true;
		slurm_error("cordee: node %s: no container: another plugin has the option --environment here", node_name());
		return 0;
	}
	hold(environment, container.batch && argc > 0 ? argv[0] : NULL);
	return 0; /* every task says that it failed: a node that "cannot launch" would be drained, and the job requeued */
}

static void give_up(const char *what, const char *given)
{
	slurm_error("cordee: node %s: %s %s: %s", node_name(), what, given, strerror(errno));
	_exit(EXIT_ENGINE);
}

static void join(void)
{
	char here[4096], rest;
	const char *workdir = answer("workdir=");

	if (!getcwd(here, sizeof(here)))
		strcpy(here, "/");
	if (container.user_ns >= 0 && setns(container.user_ns, CLONE_NEWUSER) < 0)
		give_up("the container's users cannot be joined:", "setns");
	if (setns(container.mount_ns, CLONE_NEWNS) < 0)
		give_up("the container cannot be joined:", "setns");
	/* What ends the tasks of a container whose holder is gone has looked for them already, or sees this one from here on. */
	if (recv(container.socket, &rest, 1, MSG_DONTWAIT | MSG_PEEK) == 0)
		_exit(EXIT_ENGINE);
	/* Only now: a change of rights takes this back. Without slurmstepd nobody would end the task. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != container.stepd)
		_exit(EXIT_ENGINE);
	if (!workdir || !*workdir)
		workdir = here;
	if (chdir(workdir) < 0)
		give_up("the container has no working directory", workdir);
}

static void lengthen(spank_t spank, const char *name, const char *value, bool front)
{
	char **environment = NULL, *joined;
	const char *before;

	if (spank_get_item(spank, S_JOB_ENV, &environment) == ESPANK_SUCCESS && (before = find(environment, name)) && *before) {
		if (asprintf(&joined, "%s:%s", front ? value : before, front ? before : value) < 0)
			return;
		spank_setenv(spank, name, joined, 1);
		free(joined);
	} else
		spank_setenv(spank, name, value, 1);
}

/* What the environment definition file sets goes before the image, and the image before the host. */
static void set_variables(spank_t spank, const char *records, size_t size)
{
	for (const char *record = records; record < records + size; record += strlen(record) + 1) {
		bool back = strncmp(record, "append ", 7) == 0, front = strncmp(record, "prepend ", 8) == 0;
		bool set = strncmp(record, "env ", 4) == 0, missing = strncmp(record, "default ", 8) == 0;
		if (strncmp(record, "unset ", 6) == 0)
			spank_unsetenv(spank, record + 6);
		if (!back && !front && !set && !missing)
			continue;
		char *name = strdup(strchr(record, ' ') + 1), *value = strchr(name, '=');
		*value++ = '\0';
		if (back || front)
			lengthen(spank, name, value, front);
		else
			spank_setenv(spank, name, value, set);
		free(name);
	}
}

/* Show the last of what start-up commands have printed, which nobody else reads. */
static void show_words(void)
{
	char last[2000];
	off_t size = lseek(container.words, 0, SEEK_END), shown = sizeof(last) - 1;
	ssize_t got = pread(container.words, last, shown, size > shown ? size - shown : 0);

	while (got > 0 && last[got - 1] == '\n')
		got--;
	if (got <= 0)
		return;
	last[got] = '\0';
	slurm_spank_log("%s", last);
}

/* Wait until the start-up commands have ended, and take what they left; ends the task where they failed. Tasks wait, since a
 * slurmstepd that has not started them yet hears of no signal and no scancel. */
static void await_startup(spank_t spank)
{
	struct pollfd wait = {container.socket, POLLIN, 0};
	const char *problem = NULL, *said = NULL;
	uint32_t task = 0;
	off_t size;
	char *records, rest;

	if (!answer("startup="))
		return;
	prctl(PR_SET_NAME, "cordee-startup"); /* proctrack/linuxproc spares all that are called slurmstepd */
	while (!(fcntl(container.startup, F_GET_SEALS) & F_SEAL_WRITE) && !problem) {
		if (poll(&wait, 1, 20) > 0 && recv(container.socket, &rest, 1, MSG_DONTWAIT | MSG_PEEK) == 0)
			problem = "what holds it ended during the start-up";
		if (getppid() != container.stepd)
			_exit(EXIT_ENGINE);
	}
	size = lseek(container.startup, 0, SEEK_END);
	records = calloc(1, size + 1);
	if (!records || pread(container.startup, records, size, 0) != size)
		give_up("what the start-up left", "cannot be read");
	for (char *record = records; !problem && record < records + size; record += strlen(record) + 1) {
		if (strncmp(record, "error ", 6) == 0)
			problem = record + 6;
		if (strncmp(record, "say=", 4) == 0)
			said = record + 4;
	}
	/* Once for all tasks of the node. */
	if (spank_get_item(spank, S_TASK_ID, &task) == ESPANK_SUCCESS && task == 0) {
		if (problem) {
			show_words();
			slurm_error("cordee: node %s: no container: %s", node_name(), problem);
		} else if (said)
			slurm_spank_log("cordee: node %s: %s", node_name(), said);
	}
	if (problem)
		_exit(EXIT_ENGINE);
	set_variables(spank, records, size);
	free(records);
}

static void set_path(spank_t spank)
{
	/* With --export=NONE there is none, and the path that srun found is not the container's. */
	spank_setenv(spank, "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 0);
}

static void quote(int to, const char *word)
{
	dprintf(to, " '");
	for (; *word; word++)
		dprintf(to, *word == '\'' ? "'\\''" : "%c", *word);
	dprintf(to, "'");
}

/* Return the path of a script in memory that runs a command through the entrypoint: there is no room for more words in
 * what Slurm executes, and what it does between here and there must be done. */
static char *through_entrypoint(const char *command)
{
	const char *end = container.records + container.size;
	int script = memfd_create("entrypoint", 0);
	char *path;

	if (script < 0 || asprintf(&path, "/proc/self/fd/%d", script) < 0)
		give_up("the entrypoint cannot be run:", "memfd_create");
	dprintf(script, "#!/bin/sh\nexec");
	for (const char *record = container.records; record < end; record += strlen(record) + 1)
		if (strncmp(record, "entrypoint=", 11) == 0)
			quote(script, record + 11);
	quote(script, command);
	dprintf(script, " \"$@\"\n");
	return path;
}

int slurm_spank_task_init(spank_t spank, int count, char **words)
{
	int argc = 0;
	char **argv = NULL, **environment = NULL;

	(void)count, (void)words;
	if (container.failed)
		_exit(EXIT_ENGINE);
	if (!container.joined)
		return 0;
	set_variables(spank, container.records, container.size);
	set_path(spank);
	await_startup(spank);
	join();
	if (spank_get_item(spank, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS || argc < 1 ||
	    spank_get_item(spank, S_JOB_ENV, &environment) != ESPANK_SUCCESS)
		return 0;
	const char *typed = find(environment, COMMAND);
	if (typed && !container.batch && same_name(typed, argv[0]))
		argv[0] = strdup(typed);
	spank_unsetenv(spank, COMMAND);
	if (answer("entrypoint=") && !container.batch)
		argv[0] = through_entrypoint(argv[0]);
	return 0;
}

/* Say it while the job still listens: a task that was killed with its container shall not look like one that crashed. */
int slurm_spank_task_exit(spank_t spank, int count, char **words)
{
	static bool said;
	char rest;

	(void)spank, (void)count, (void)words;
	if (!container.joined || said || recv(container.socket, &rest, 1, MSG_DONTWAIT) != 0)
		return 0;
	said = true;
	slurm_error("cordee: node %s: the container ended before its tasks: what held it was killed", node_name());
	return 0;
}

int slurm_spank_exit(spank_t spank, int count, char **words)
{
	struct pollfd wait = {container.socket, POLLIN, 0};

	(void)spank, (void)count, (void)words;
	if (container.socket < 0 || getpid() != container.stepd)
		return 0;
	shutdown(container.socket, SHUT_WR);
	poll(&wait, 1, END_MS);
	close(container.socket);
	container.socket = -1;
	return 0;
}
