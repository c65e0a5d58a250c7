/* A library with the names and the binary interface of DCGM that answers from a text file, as if it asked a host engine.
 *
 * FAKE_DCGM names the file; its lines are `key = value`. It is read again at every question.
 *
 *   down = 1                   no host engine answers
 *   count = 2                  GPUs
 *   gpu.0.1002 = 0.8           a field by its id: with a point or an exponent a double, text for 50 and 54, else an integer
 *   gpu.0.1004 = blank+2       DCGM's blank value (0), not found (1), not supported (2), no permission (3)
 *   gpu.0.status.155 = -21     the value's own error code
 *   age_s = 60                 values are so old
 *   error.dcgmWatchFields = -6 the function returns this error; error.dcgmWatchFields.1002: when it watches this field
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK = 0, BADPARAM = -1, NO_DATA = -14, NOT_VALID = -21, TEXT = 256, MOST_FIELDS = 128, MOST_GROUPS = 256 };

typedef struct { unsigned version, persist, timeout_ms, is_socket; } ConnectParams;
typedef struct { unsigned group, id; } Entity;
typedef struct {
  unsigned version, entity_group, entity_id;
  unsigned short field;
  short kind;
  int status;
  unsigned unused;
  int64_t time_us;
  union { int64_t number; double real; char text[4096]; } value;
} FieldValue;

static unsigned short groups[MOST_GROUPS][MOST_FIELDS];
static int sizes[MOST_GROUPS], group_count;
static unsigned char watched[65536];

static int lookup(const char *key, char value[TEXT]) {
  FILE *file = getenv("FAKE_DCGM") ? fopen(getenv("FAKE_DCGM"), "r") : NULL;
  char line[512];
  int found = 0;
  while (file && !found && fgets(line, sizeof line, file)) {
    char *equal = strstr(line, " = ");
    if (!equal) continue;
    *equal = 0;
    if (strcmp(line, key) != 0) continue;
    equal[3 + strcspn(equal + 3, "\r\n")] = 0;
    snprintf(value, TEXT, "%s", equal + 3);
    found = 1;
  }
  if (file) fclose(file);
  return found;
}

static long number(const char *key, long otherwise) {
  char value[TEXT];
  return lookup(key, value) ? strtol(value, NULL, 10) : otherwise;
}

static int enter(const char *function) {
  char key[TEXT];
  snprintf(key, sizeof key, "error.%s", function);
  return (int)number(key, OK);
}

const char *errorString(int code) {
  switch (code) {
    case NOT_VALID: return "The connection is not valid";
    case -6: return "Feature not supported";
    case -52: return "Profiling is not supported for this group of GPUs or GPU";
    default: return "an error of the fake library";
  }
}

int dcgmInit(void) { return enter("dcgmInit"); }
int dcgmShutdown(void) { return OK; }
int dcgmDisconnect(uintptr_t handle) { return handle == 7 ? OK : BADPARAM; }

int dcgmConnect_v2(const char *address, ConnectParams *params, uintptr_t *handle) {
  if (params->version != (sizeof *params | 2u << 24) || !address[0]) return BADPARAM;
  if (number("down", 0)) return NOT_VALID;
  *handle = 7;
  return enter("dcgmConnect_v2");
}

int dcgmGetAllDevices(uintptr_t handle, unsigned *ids, int *count) {
  if (handle != 7) return BADPARAM;
  *count = (int)number("count", 0);
  for (int index = 0; index < *count; index++) ids[index] = (unsigned)index;
  return enter("dcgmGetAllDevices");
}

int dcgmGroupCreate(uintptr_t handle, int kind, const char *name, uintptr_t *group) {
  if (handle != 7 || kind != 1 || !name) return BADPARAM;
  *group = 1;
  return enter("dcgmGroupCreate");
}

int dcgmGroupAddDevice(uintptr_t handle, uintptr_t group, unsigned id) {
  (void)id;
  return handle == 7 && group == 1 ? enter("dcgmGroupAddDevice") : BADPARAM;
}

int dcgmFieldGroupCreate(uintptr_t handle, int count, const unsigned short *fields, const char *name, uintptr_t *group) {
  if (handle != 7 || !name || count > MOST_FIELDS || group_count == MOST_GROUPS) return BADPARAM;
  memcpy(groups[group_count], fields, (size_t)count * sizeof *fields);
  sizes[group_count] = count;
  *group = (uintptr_t)group_count++;
  return enter("dcgmFieldGroupCreate");
}

int dcgmWatchFields(uintptr_t handle, uintptr_t group, uintptr_t fields, int64_t every_us, double keep_s, int samples) {
  char key[TEXT];
  int code = enter("dcgmWatchFields");
  (void)samples;
  if (handle != 7 || group != 1 || every_us <= 0 || keep_s <= 0) return BADPARAM;
  for (int index = 0; !code && index < sizes[fields]; index++) {
    snprintf(key, sizeof key, "error.dcgmWatchFields.%u", groups[fields][index]);
    code = (int)number(key, OK);
  }
  for (int index = 0; !code && index < sizes[fields]; index++) watched[groups[fields][index]] = 1;
  return code;
}

int dcgmUpdateAllFields(uintptr_t handle, int wait) {
  (void)wait;
  return handle == 7 ? enter("dcgmUpdateAllFields") : BADPARAM;
}

static void fill(FieldValue *value, Entity entity, unsigned short field, unsigned flags) {
  char key[TEXT], text[TEXT];
  memset(value, 0, sizeof *value);
  value->version = sizeof *value | 2u << 24;
  value->entity_group = entity.group;
  value->entity_id = entity.id;
  value->field = field;
  value->time_us = ((int64_t)time(NULL) - number("age_s", 0)) * 1000000;
  snprintf(key, sizeof key, "gpu.%u.status.%u", entity.id, field);
  value->status = (int)number(key, OK);
  snprintf(key, sizeof key, "gpu.%u.%u", entity.id, field);
  if ((!watched[field] && !(flags & 1)) || !lookup(key, text)) {
    value->status = value->status ? value->status : NO_DATA;
  } else if (field == 50 || field == 54) {
    value->kind = 's';
    snprintf(value->value.text, sizeof value->value.text, "%s", text);
  } else if (strncmp(text, "blank+", 6) == 0 && field >= 1000) {
    value->kind = 'd';
    value->value.real = 140737488355328.0 + strtod(text + 6, NULL);
  } else if (strncmp(text, "blank+", 6) == 0) {
    value->kind = 'i';
    value->value.number = 0x7ffffffffffffff0ll + strtoll(text + 6, NULL, 10);
  } else if (strpbrk(text, ".e")) {
    value->kind = 'd';
    value->value.real = strtod(text, NULL);
  } else {
    value->kind = 'i';
    value->value.number = strtoll(text, NULL, 10);
  }
}

int dcgmEntitiesGetLatestValues(uintptr_t handle, Entity *entities, unsigned entity_count, unsigned short *fields,
                                unsigned field_count, unsigned flags, FieldValue *values) {
  int code = enter("dcgmEntitiesGetLatestValues");
  if (handle != 7) return BADPARAM;
  for (unsigned at = 0; !code && at < entity_count * field_count; at++)
    fill(&values[at], entities[at / field_count], fields[at % field_count], flags);
  return code;
}
