/* What both halves of the plugin use: cordee.c, where jobs are submitted, and node.c. */
#ifndef CORDEE_H
#define CORDEE_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/spank.h>

#define CARRIED "SLURM_CORDEE_ENVIRONMENT" /* the word itself; what does not fit follows in _1, _2, ... */
#define COMMAND "SLURM_CORDEE_COMMAND"     /* the command of srun as it was typed */
#define MAX_CHUNKS 16
#define EXIT_ENGINE 125

/* Slurm's libraries have names like these, too. */
#pragma GCC visibility push(hidden)

/* The words of plugstack.conf. */
struct site {
	const char *python, *node_python;
	const char *package, *node_package; /* NULL: what the interpreter has */
	const char *cluster;
	const char *bind;
	int timeout_s;
	bool inert; /* another plugin has the option */
};
extern struct site site;

/* Run a module of Cordée in place of this process. */
void run_module(const char *python, const char *package, const char *module, const char *argument, char **environment);

/* Write the name of the variable that carries a part of the environment. */
void chunk_name(char *name, size_t size, int index);

/* Return whether two commands have the same last part of their paths. */
bool same_name(const char *one, const char *other);

#pragma GCC visibility pop
#endif
