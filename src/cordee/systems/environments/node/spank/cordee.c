/*
 * Slurm's plugin of Cordée: srun, sbatch and salloc take --environment=FILE|NAME, an environment definition file.
 *
 * Where a job is submitted, `cordee.systems.environments.spank_render` turns the file into one word. The job carries it in
 * variables whose names begin with SLURM_, which are passed on even with --export=NONE, so that nodes need no file and
 * every srun in the job finds it again. On a node, once for each step, `cordee.systems.environments.node.spank.hold` keeps a container
 * open, and every task of the step joins it.
 *
 *   hook              where        as       does
 *   init              everywhere            registers the option; stays out of the way where another plugin has it
 *   init_post_opt     submission   the user renders the environment; a bad one ends the command here
 *   local_user_init   srun         the user keeps the command as it was typed, since srun looks it up on its own machine
 *   user_init         slurmstepd   the user starts the container; the child gives up root for good before it runs anything
 *   task_init         each task    the user joins the container, sets directory and variables
 *   task_exit         slurmstepd   root     says whether the container ended first
 *   exit              slurmstepd   root     lets the container go
 *
 * Words of its line in plugstack.conf: python=PATH, the interpreter that has Cordée where jobs are submitted;
 * node_python=PATH, that of nodes (default: the same); cordee=PATH and node_cordee=PATH, a folder or zip with the package for
 * either (default: what the interpreter has); cluster=NAME, whose profile counts where a user's CORDEE_ON names none;
 * bind=PATH:PATH..., what every container of the site shows of its node, as a TaskProlog, which Slurm runs inside;
 * timeout_s=SECONDS to start a container (default 120).
 */
#include "cordee.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/wait.h>

SPANK_PLUGIN(cordee, 1);

#define GIVEN "_SLURM_SPANK_OPTION_cordee_environment"
#define GIVEN_ALIAS "_SLURM_SPANK_OPTION_cordee_edf"
#define CHUNK 100000 /* the kernel takes no variable of more than 128 KiB */

struct site site = {.python = "python3", .timeout_s = 120};

static char *wanted; /* what was given to the option, in the order of Slurm: the last one holds */

static int take_option(int value, const char *argument, int remote)
{
	(void)value;
	if (remote)
		return 0;
	/* The parts of a heterogeneous step are started by one srun, whose variables are those of all of them. */
	if (wanted && spank_context() == S_CTX_LOCAL && strcmp(wanted, argument) != 0) {
		slurm_error("cordee: one srun has one environment, given: %s and %s; start the parts by an srun each", wanted, argument);
		return -1;
	}
	free(wanted);
	wanted = strdup(argument);
	return 0;
}

static struct spank_option option = {
	"environment", "FILE|NAME",
	"run in the container environment of this definition file: a path that begins with . or /, or a name in EDF_PATH; "
	"empty: in none",
	1, 0, take_option};

/* Also by the name that the Sarus Suite gives it. */
static struct spank_option alias = {"edf", "FILE|NAME", "the same as --environment", 1, 0, take_option};

/* Options of other container plugins, which scripts have: each is refused with the key of a definition file that says the same. */
static const struct {
	const char *name, *argument, *instead;
} others[] = {
	{"container-image", "IMAGE", "image = \"IMAGE\""},
	{"container-mounts", "MOUNTS", "mounts = [\"SOURCE:TARGET\"]"},
	{"container-workdir", "PATH", "workdir = \"PATH\""},
	{"container-env", "NAMES", "the table [env]; what it does not set, and the image neither, is taken from the job"},
	{"container-writable", NULL, "writable = true, which is the default"},
	{"container-readonly", NULL, "writable = false"},
	{"container-entrypoint", NULL, "entrypoint = true"},
	{"no-container-entrypoint", NULL, "entrypoint = false, which is the default"},
	{"container-mount-home", NULL, "mounts = [\"${HOME}\"]"},
	{"no-container-mount-home", NULL, "nothing: a home is mounted only where `mounts` has it"},
	{"container-remap-root", NULL, "nothing: inside you are who you are"},
	{"no-container-remap-root", NULL, "nothing: inside you are who you are"},
	{"container-name", "NAME", "nothing: all tasks of a step on a node share one; [stack] overlay keeps what is written"},
	{"container-save", "PATH", "nothing; [stack] overlay keeps what is written"},
};
#define OTHERS (int)(sizeof(others) / sizeof(others[0]))

static int refuse_option(int value, const char *argument, int remote)
{
	(void)argument;
	if (remote)
		return 0;
	slurm_error("cordee: --%s belongs to another container plugin. Use --environment=FILE, and write in that file: %s",
		    others[value].name, others[value].instead);
	return -1;
}

static void read_site(int count, char **words)
{
	const struct {
		const char *key;
		const char **value;
	} texts[] = {{"python=", &site.python},
		     {"node_python=", &site.node_python},
		     {"cordee=", &site.package},
		     {"node_cordee=", &site.node_package},
		     {"cluster=", &site.cluster},
		     {"bind=", &site.bind}};
	const size_t known = sizeof(texts) / sizeof(texts[0]);

	for (int i = 0; i < count; i++) {
		size_t k = 0;
		while (k < known && strncmp(words[i], texts[k].key, strlen(texts[k].key)) != 0)
			k++;
		if (k < known)
			*texts[k].value = words[i] + strlen(texts[k].key);
		else if (strncmp(words[i], "timeout_s=", 10) == 0 && atoi(words[i] + 10) > 0)
			site.timeout_s = atoi(words[i] + 10);
		else
			slurm_error("cordee: plugstack.conf: unknown word %s; allowed: python=, node_python=, cordee=, "
				    "node_cordee=, cluster=, bind=, timeout_s=", words[i]);
	}
}

struct sought {
	const char *name; /* with a NUL byte before it and one behind it: a word of its own */
	size_t size;
	char *found;
};

/* Whether a library is another plugin of this kind that names an option: Slurm loads all before it calls the first, and
 * gives an option that two register to the first of them, with a line on everybody's screen. */
static int has_option(struct dl_phdr_info *library, size_t size, void *wanted)
{
	struct sought *sought = wanted;
	void *loaded = *library->dlpi_name ? dlopen(library->dlpi_name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
	const void *mark = loaded ? dlsym(loaded, "spank_plugin_version") : NULL;

	(void)size;
	for (int i = 0; mark && mark != &spank_plugin_version && i < library->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &library->dlpi_phdr[i];
		if (part->p_type == PT_LOAD && (part->p_flags & PF_R) &&
		    memmem((const char *)library->dlpi_addr + part->p_vaddr, part->p_filesz, sought->name, sought->size))
			sought->found = strdup(library->dlpi_name);
	}
	if (loaded)
		dlclose(loaded);
	return sought->found != NULL;
}

static bool is_free(const char *name, size_t size)
{
	struct sought sought = {name, size, NULL};

	dl_iterate_phdr(has_option, &sought);
	free(sought.found);
	return sought.found == NULL;
}
#define IS_FREE(name) is_free("\0" name, sizeof("\0" name))

static int register_options(spank_t spank)
{
	if (spank_option_register(spank, &option) != ESPANK_SUCCESS)
		return -1;
	if (IS_FREE("edf"))
		spank_option_register(spank, &alias);
	for (int i = 0; IS_FREE("container-image") && i < OTHERS; i++) {
		char *usage = NULL;
		if (asprintf(&usage, "refused; in the definition file: %s", others[i].instead) < 0)
			return -1;
		struct spank_option refused = {(char *)others[i].name, (char *)others[i].argument, usage, others[i].argument != NULL, i,
					       refuse_option};
		spank_option_register(spank, &refused);
		free(usage);
	}
	return 0;
}

int slurm_spank_init(spank_t spank, int count, char **words)
{
	spank_context_t context = spank_context();
	struct sought sought = {"\0environment", sizeof("\0environment"), NULL};

	if (context == S_CTX_JOB_SCRIPT)
		return 0;
	read_site(count, words);
	dl_iterate_phdr(has_option, &sought);
	if (sought.found) {
		site.inert = true;
		if (context == S_CTX_SLURMD)
			slurm_info("cordee: %s has the option --environment; this plugin stays out of its way", sought.found);
		free(sought.found);
		return 0;
	}
	/* Slurm would hand an option of the job to every command in it as if it had been typed: the file would be read again,
	 * where it may not be, and by jobs that are submitted from inside. */
	unsetenv(GIVEN);
	unsetenv("SLURM_SPANK_" GIVEN);
	unsetenv(GIVEN_ALIAS);
	unsetenv("SLURM_SPANK_" GIVEN_ALIAS);
	return register_options(spank);
}

void run_module(const char *python, const char *package, const char *module, const char *argument, char **environment)
{
	const char *start = "import runpy, sys; sys.path[:0] = list(filter(None, [sys.argv.pop(1)])); "
			    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)";
	char *words[] = {(char *)python, "-I",		   "-c", (char *)start, (char *)(package ? package : ""),
			 (char *)module, (char *)argument, NULL};

	execvpe(python, words, environment);
	dprintf(2, "cordee: cannot run %s, as plugstack.conf says: %s\n", python, strerror(errno));
	_exit(EXIT_ENGINE);
}

static char *read_all(int descriptor, size_t *size)
{
	size_t room = 65536;
	char *data = malloc(room);
	ssize_t got;

	*size = 0;
	while (data && (got = read(descriptor, data + *size, room - *size - 1)) != 0) {
		if (got < 0 && errno != EINTR)
			break;
		*size += got > 0 ? got : 0;
		if (room - *size < 2)
			data = realloc(data, room *= 2);
	}
	if (data)
		data[*size] = '\0';
	return data;
}

void chunk_name(char *name, size_t size, int index)
{
	if (index == 0)
		snprintf(name, size, "%s", CARRIED);
	else
		snprintf(name, size, "%s_%d", CARRIED, index);
}

static void forget(void)
{
	char name[64];

	for (int i = 0; i < MAX_CHUNKS; i++) {
		chunk_name(name, sizeof(name), i);
		unsetenv(name);
	}
	unsetenv(COMMAND);
}

static int render(void)
{
	int pipe_ends[2], status = -1;
	size_t size = 0;
	char name[64];

	if (pipe2(pipe_ends, O_CLOEXEC) < 0)
		return -1;
	pid_t child = fork();
	if (child == 0) {
		dup2(pipe_ends[1], 1);
		if (site.cluster)
			setenv("CORDEE_ON", site.cluster, 0);
		run_module(site.python, site.package, "cordee.systems.environments.spank_render", wanted, environ);
	}
	close(pipe_ends[1]);
	char *word = child > 0 ? read_all(pipe_ends[0], &size) : NULL;
	close(pipe_ends[0]);
	while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (status != 0 || !word || size == 0) {
		if (!WIFEXITED(status) || WEXITSTATUS(status) == 0)
			slurm_error("cordee: --environment=%s: %s ended without an answer", wanted, site.python);
		free(word);
		return -1;
	}
	word[strcspn(word, "\n")] = '\0';
	size = strlen(word);
	for (size_t i = 0; i * CHUNK < size && i < MAX_CHUNKS; i++) {
		char *part = strndup(word + i * CHUNK, CHUNK);
		chunk_name(name, sizeof(name), (int)i);
		setenv(name, part, 1);
		free(part);
	}
	free(word);
	return 0;
}

int slurm_spank_init_post_opt(spank_t spank, int count, char **words)
{
	spank_context_t context = spank_context();

	(void)spank, (void)count, (void)words;
	if (site.inert || (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR))
		return 0;
	/* A new job inherits nothing from the one that it is submitted from; a step does. */
	if (wanted || context == S_CTX_ALLOCATOR || !getenv("SLURM_JOB_ID"))
		forget();
	return wanted && *wanted ? render() : 0;
}

bool same_name(const char *one, const char *other)
{
	const char *a = strrchr(one, '/'), *b = strrchr(other, '/');

	return strcmp(a ? a + 1 : one, b ? b + 1 : other) == 0;
}

/* srun replaces the command by what it finds in its own PATH: its own words, at the end of its command line, are kept.
 * Other parts of a heterogeneous step have theirs in the middle; they run what srun has found. */
int slurm_spank_local_user_init(spank_t spank, int count, char **words)
{
	int argc = 0, descriptor;
	char **argv = NULL;
	size_t size = 0;

	(void)count, (void)words;
	unsetenv(COMMAND);
	if (site.inert || !getenv(CARRIED) || spank_get_item(spank, S_JOB_ARGV, &argc, &argv) != ESPANK_SUCCESS || argc < 1)
		return 0;
	if ((descriptor = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC)) < 0)
		return 0;
	char *line = read_all(descriptor, &size);
	close(descriptor);
	char *at = line ? line + size : NULL;
	for (int i = 0; i < argc && at > line; i++)
		for (at--; at > line && at[-1] != '\0'; at--)
			;
	if (at && same_name(at, argv[0]))
		setenv(COMMAND, at, 1);
	free(line);
	return 0;
}
