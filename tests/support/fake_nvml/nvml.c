/* A library with the names and the binary interface of NVML that answers from a text file.
 *
 * FAKE_NVML names the file, or a folder in which a node's file is <CORDEE_NODE or SLURMD_NODENAME>.txt, else default.txt.
 * Its lines are `key = value`; `#` begins a comment. It is read again when it was replaced, so that it may change meanwhile.
 *
 *   count = 4                                   driver_version = 550.54.15
 *   device.0.temperature = 65                   what a device says; a key that is not there is "not supported"
 *   device.0.nvlink.3.crc_flit = 10+5           grows by 5 with every question of a process
 *   device.0.process.0 = 4711 1048576           process id and bytes of GPU memory
 *   device.0.field.82 = 60                      a field value; field.ID.SCOPE where it belongs to a link
 *   error.nvmlInitWithFlags = 18                the function returns this error
 *   device.0.error.nvmlDeviceGetName = 15       the same for one device; `error.*` means all functions of the device
 *   hang.nvmlInitWithFlags = 1                  the function never returns; device.0.hang.FUNCTION too
 *   cost_us.nvmlGpmSampleGet = 60               the function computes for so long before it answers
 *   device.0.gpm.2 = 87.5                       a GPM metric by its id; one that is not there is not supported
 *   gpm_strict = 1                              one unknown id fails a whole nvmlGpmMetricsGet
 *   device.0.energy = 1                         there is an energy counter: power_mw at all times
 *   device.0.violation_power = 0.25             the share of all time in which a cap of power held the clocks down
 *   device.0.xid = 79 1                         an event: XID 79, told once for each text that is new since devices were registered
 *   device.0.mig.2.uuid = MIG-...               GPU instance 2: uuid, memory_total, memory_used, sm_count, slices, gpm.ID
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9 };
enum { MOST_DEVICES = 64, MOST_INSTANCES = 16, MOST_GROWING = 512, TEXT = 256, SLOTS = 8192, WHOLE = -1 };

typedef struct { unsigned index; int instance; } Device;
typedef struct { char text[160]; unsigned long long asked; } Growing;
typedef struct { char *key, *value; } Entry;

static Device devices[MOST_DEVICES], instances[MOST_DEVICES][MOST_INSTANCES];
static Growing growing[MOST_GROWING];
static Entry entries[SLOTS];
static char *content;
static struct stat seen;
static int any_hang, any_cost, any_error;

static unsigned slot_of(const char *key) {
  unsigned hash = 2166136261u, slot;
  for (const char *at = key; *at; at++) hash = (hash ^ (unsigned char)*at) * 16777619u;
  for (slot = hash % SLOTS; entries[slot].key && strcmp(entries[slot].key, key) != 0;) slot = (slot + 1) % SLOTS;
  return slot;
}

static void parse(FILE *file, size_t size) {
  char *line, *rest;
  free(content);
  memset(entries, 0, sizeof entries);
  any_hang = any_cost = any_error = 0;
  content = calloc(size + 1, 1);
  rest = fread(content, 1, size, file) ? content : NULL;
  while ((line = strsep(&rest, "\n"))) {
    char *equal = strchr(line, '='), *end;
    unsigned slot;
    if (line[0] == '#' || !equal) continue;
    for (end = equal; end > line && (end[-1] == ' ' || end[-1] == '\t'); end--) continue;
    *end = 0;
    equal += 1 + strspn(equal + 1, " \t");
    equal[strcspn(equal, "\r\n")] = 0;
    any_hang |= strstr(line, "hang.") != NULL;
    any_cost |= strstr(line, "cost_us.") != NULL;
    any_error |= strstr(line, "error.") != NULL;
    slot = slot_of(line);
    if (!entries[slot].key) entries[slot] = (Entry){line, equal};
  }
}

/* Reads the file, unless it is the one that was read last; returns whether there is one. */
static int refresh(void) {
  const char *place = getenv("FAKE_NVML"), *node = getenv("CORDEE_NODE");
  char path[4096];
  struct stat now;
  FILE *file;
  if (!place || stat(place, &now) != 0) return 0;
  if (S_ISDIR(now.st_mode)) {
    if (!node) node = getenv("SLURMD_NODENAME");
    snprintf(path, sizeof path, "%s/%s.txt", place, node ? node : "default");
    if (stat(path, &now) != 0) snprintf(path, sizeof path, "%s/default.txt", place);
    place = path;
    if (stat(place, &now) != 0) return 0;
  }
  if (content && now.st_ino == seen.st_ino && now.st_dev == seen.st_dev && now.st_size == seen.st_size &&
      now.st_mtim.tv_sec == seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec)
    return 1;
  file = fopen(place, "r");
  if (!file) return 0;
  parse(file, (size_t)now.st_size);
  seen = now;
  fclose(file);
  return 1;
}

/* Looks a key up, in the file as it was when the call was entered; returns whether it is there. */
static int lookup(const char *key, char value[TEXT]) {
  const Entry *entry = &entries[slot_of(key)];
  if (!entry->key) return 0;
  snprintf(value, TEXT, "%s", entry->value);
  return 1;
}

static int lookup_real(const char *key, double *number) {
  char value[TEXT];
  if (!lookup(key, value)) return 0;
  *number = strtod(value, NULL);
  return 1;
}

static double uptime_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Looks a number up: "7", "0x40", "12.5" or "10+5". */
static int lookup_number(const char *key, unsigned long long *number) {
  char value[TEXT], *rest;
  if (!lookup(key, value)) return 0;
  *number = strtoull(value, &rest, 0);
  if (*rest == '+') {
    int slot = 0;
    while (slot < MOST_GROWING - 1 && growing[slot].text[0] && strcmp(growing[slot].text, key) != 0) slot++;
    snprintf(growing[slot].text, sizeof growing[slot].text, "%s", key);
    *number += strtoull(rest + 1, NULL, 0) * growing[slot].asked++;
  }
  return 1;
}

/* Hangs, computes for a while or returns an error where the file says so. */
static int misbehave(const char *prefix, const char *function) {
  char key[TEXT];
  unsigned long long number;
  snprintf(key, sizeof key, "%shang.%s", prefix, function);
  if (any_hang && lookup_number(key, &number) && number)
    for (;;) pause();
  snprintf(key, sizeof key, "%scost_us.%s", prefix, function);
  if (any_cost && lookup_number(key, &number))
    for (double until = uptime_s() + (double)number / 1e6; uptime_s() < until;) continue;
  snprintf(key, sizeof key, "%serror.%s", prefix, function);
  if (any_error && lookup_number(key, &number)) return (int)number;
  return SUCCESS;
}

static int enter(const char *function) {
  if (!refresh()) {
    memset(entries, 0, sizeof entries);
    free(content);
    content = NULL;
    any_hang = any_cost = any_error = 0;
  }
  return any_hang || any_cost || any_error ? misbehave("", function) : SUCCESS;
}

static int is_device(const Device *device) {
  return (device >= devices && device < devices + MOST_DEVICES) ||
         (device >= instances[0] && device < instances[0] + MOST_DEVICES * MOST_INSTANCES);
}

static int enter_device(const Device *device, const char *function) {
  char prefix[32];
  int code = enter(function);
  if (code) return code;
  if (!is_device(device)) return INVALID_ARGUMENT;
  if (!any_hang && !any_cost && !any_error) return SUCCESS;
  snprintf(prefix, sizeof prefix, "device.%u.", device->index);
  code = misbehave(prefix, function);
  return code ? code : misbehave(prefix, "*");
}

static void key_of(const Device *device, const char *key, char full[TEXT]) {
  if (device->instance == WHOLE) snprintf(full, TEXT, "device.%u.%s", device->index, key);
  else snprintf(full, TEXT, "device.%u.mig.%d.%s", device->index, device->instance, key);
}

static int number_of(const Device *device, const char *key, unsigned long long *number) {
  char full[TEXT];
  key_of(device, key, full);
  return lookup_number(full, number) ? SUCCESS : NOT_SUPPORTED;
}

static int unsigned_of(const Device *device, const char *key, unsigned *value) {
  unsigned long long number;
  int code = number_of(device, key, &number);
  if (code == SUCCESS) *value = (unsigned)number;
  return code;
}

static int text_of(const Device *device, const char *key, char *text, unsigned length) {
  char full[TEXT], value[TEXT];
  key_of(device, key, full);
  if (!lookup(full, value)) return NOT_SUPPORTED;
  snprintf(text, length, "%s", value);
  return SUCCESS;
}

static int system_text(const char *function, const char *key, char *text, unsigned length) {
  char value[TEXT];
  int code = enter(function);
  if (code) return code;
  if (!lookup(key, value)) return NOT_SUPPORTED;
  snprintf(text, length, "%s", value);
  return SUCCESS;
}

#define ENTER_DEVICE(function) \
  { \
    int code = enter_device(device, #function); \
    if (code) return code; \
  }
#define ONE_NUMBER(function, key) \
  int function(Device *device, unsigned *value) { \
    ENTER_DEVICE(function) \
    return unsigned_of(device, key, value); \
  }
#define TWO_NUMBERS(function, first_key, second_key) \
  int function(Device *device, unsigned *first, unsigned *second) { \
    ENTER_DEVICE(function) \
    int found = unsigned_of(device, first_key, first); \
    return found ? found : unsigned_of(device, second_key, second); \
  }
#define ONE_TEXT(function, key) \
  int function(Device *device, char *text, unsigned length) { \
    ENTER_DEVICE(function) \
    return text_of(device, key, text, length); \
  }

/* The system. */

int nvmlInitWithFlags(unsigned flags) {
  int code = enter("nvmlInitWithFlags");
  (void)flags;
  if (code) return code;
  if (!refresh()) return DRIVER_NOT_LOADED;
  for (unsigned index = 0; index < MOST_DEVICES; index++) {
    devices[index] = (Device){index, WHOLE};
    for (int instance = 0; instance < MOST_INSTANCES; instance++)
      instances[index][instance] = (Device){index, instance};
  }
  return SUCCESS;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) { return enter("nvmlShutdown"); }

const char *nvmlErrorString(int code) {
  switch (code) {
    case SUCCESS: return "The operation was successful";
    case NOT_SUPPORTED: return "Not Supported";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case 4: return "Insufficient Permissions";
    case 15: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "an error of the fake library";
  }
}

int nvmlSystemGetDriverVersion(char *text, unsigned length) {
  return system_text("nvmlSystemGetDriverVersion", "driver_version", text, length);
}

int nvmlSystemGetNVMLVersion(char *text, unsigned length) {
  return system_text("nvmlSystemGetNVMLVersion", "nvml_version", text, length);
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  unsigned long long number;
  int code = enter("nvmlSystemGetCudaDriverVersion_v2");
  if (code) return code;
  if (!lookup_number("cuda_driver_version", &number)) return NOT_SUPPORTED;
  *version = (int)number;
  return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  unsigned long long number = 0;
  int code = enter("nvmlDeviceGetCount_v2");
  if (code) return code;
  lookup_number("count", &number);
  *count = (unsigned)number;
  return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
  unsigned long long count = 0;
  refresh();
  lookup_number("count", &count);
  if (index >= count || index >= MOST_DEVICES) return INVALID_ARGUMENT;
  *device = &devices[index];
  return enter_device(*device, "nvmlDeviceGetHandleByIndex_v2");
}

int nvmlDeviceGetHandleByUUID(const char *uuid, Device **device) {
  unsigned long long count = 0;
  char text[TEXT];
  int code = enter("nvmlDeviceGetHandleByUUID");
  if (code) return code;
  lookup_number("count", &count);
  for (unsigned index = 0; index < count && index < MOST_DEVICES; index++) {
    *device = &devices[index];
    if (text_of(*device, "uuid", text, sizeof text) == SUCCESS && strcmp(text, uuid) == 0)
      return enter_device(*device, "nvmlDeviceGetHandleByUUID");
    for (int instance = 0; instance < MOST_INSTANCES; instance++) {
      *device = &instances[index][instance];
      if (text_of(*device, "uuid", text, sizeof text) == SUCCESS && strcmp(text, uuid) == 0)
        return enter_device(*device, "nvmlDeviceGetHandleByUUID");
    }
  }
  return NOT_FOUND;
}

/* What a device is. */

typedef struct {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
} PciInfo;

ONE_TEXT(nvmlDeviceGetUUID, "uuid")
ONE_TEXT(nvmlDeviceGetName, "name")
ONE_NUMBER(nvmlDeviceGetMinorNumber, "minor")
TWO_NUMBERS(nvmlDeviceGetMigMode, "mig_mode", "mig_mode")

int nvmlDeviceGetPciInfo_v3(Device *device, PciInfo *info) {
  ENTER_DEVICE(nvmlDeviceGetPciInfo_v3)
  memset(info, 0, sizeof *info);
  if (text_of(device, "pci_bus_id", info->bus_id, sizeof info->bus_id)) return NOT_SUPPORTED;
  sscanf(info->bus_id, "%x:%x:%x", &info->domain, &info->bus, &info->device);
  snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%04X:%02X:%02X.0", info->domain & 0xffff,
           info->bus & 0xff, info->device & 0xff);
  return SUCCESS;
}

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;

static int memory_of(const Device *device, MemoryV2 *memory) {
  if (number_of(device, "memory_total", &memory->total) || number_of(device, "memory_used", &memory->used))
    return NOT_SUPPORTED;
  memory->reserved = 0;
  number_of(device, "memory_reserved", &memory->reserved);
  memory->free = memory->total - memory->used - memory->reserved;
  return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
  MemoryV2 all;
  ENTER_DEVICE(nvmlDeviceGetMemoryInfo)
  if (memory_of(device, &all)) return NOT_SUPPORTED;
  memory->total = all.total;
  memory->free = all.free;
  memory->used = all.used + all.reserved; /* the first version of the call counts reserved memory as used */
  return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(Device *device, MemoryV2 *memory) {
  ENTER_DEVICE(nvmlDeviceGetMemoryInfo_v2)
  return memory_of(device, memory);
}

/* Heat, clocks, power. */

int nvmlDeviceGetTemperature(Device *device, unsigned sensor, unsigned *celsius) {
  ENTER_DEVICE(nvmlDeviceGetTemperature)
  return sensor ? INVALID_ARGUMENT : unsigned_of(device, "temperature", celsius);
}

int nvmlDeviceGetTemperatureThreshold(Device *device, unsigned kind, unsigned *celsius) {
  ENTER_DEVICE(nvmlDeviceGetTemperatureThreshold)
  return kind > 1 ? NOT_SUPPORTED
                  : unsigned_of(device, kind ? "temperature_slowdown" : "temperature_shutdown", celsius);
}

int nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, unsigned long long *reasons) {
  ENTER_DEVICE(nvmlDeviceGetCurrentClocksThrottleReasons)
  return number_of(device, "throttle_reasons", reasons);
}

int nvmlDeviceGetCurrentClocksEventReasons(Device *device, unsigned long long *reasons) {
  ENTER_DEVICE(nvmlDeviceGetCurrentClocksEventReasons)
  return number_of(device, "throttle_reasons", reasons);
}

static const char *const clocks[] = {"clock_graphics", "clock_sm", "clock_memory", "clock_video"};
static const char *const most_clocks[] = {"clock_graphics_max", "clock_sm_max", "clock_memory_max", "clock_video_max"};

int nvmlDeviceGetClockInfo(Device *device, unsigned kind, unsigned *mhz) {
  ENTER_DEVICE(nvmlDeviceGetClockInfo)
  return kind > 3 ? INVALID_ARGUMENT : unsigned_of(device, clocks[kind], mhz);
}

int nvmlDeviceGetMaxClockInfo(Device *device, unsigned kind, unsigned *mhz) {
  ENTER_DEVICE(nvmlDeviceGetMaxClockInfo)
  return kind > 3 ? INVALID_ARGUMENT : unsigned_of(device, most_clocks[kind], mhz);
}

ONE_NUMBER(nvmlDeviceGetPowerUsage, "power_mw")
ONE_NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw")

typedef struct { unsigned gpu, memory; } Utilization;

int nvmlDeviceGetUtilizationRates(Device *device, Utilization *percent) {
  ENTER_DEVICE(nvmlDeviceGetUtilizationRates)
  if (unsigned_of(device, "utilization_gpu", &percent->gpu)) return NOT_SUPPORTED;
  return unsigned_of(device, "utilization_memory", &percent->memory);
}

/* Energy, and time with clocks held down: counters that grow with the machine's time. */

int nvmlDeviceGetTotalEnergyConsumption(Device *device, unsigned long long *millijoules) {
  unsigned long long power = 0, there = 0;
  ENTER_DEVICE(nvmlDeviceGetTotalEnergyConsumption)
  if (number_of(device, "energy", &there) || !there || number_of(device, "power_mw", &power)) return NOT_SUPPORTED;
  *millijoules = (unsigned long long)((double)power * uptime_s());
  return SUCCESS;
}

typedef struct { unsigned long long reference_us, violation_ns; } Violation;

int nvmlDeviceGetViolationStatus(Device *device, unsigned policy, Violation *time) {
  char full[TEXT];
  double share = 0, now_s;
  ENTER_DEVICE(nvmlDeviceGetViolationStatus)
  if (policy > 1) return NOT_SUPPORTED;
  key_of(device, policy ? "violation_thermal" : "violation_power", full);
  if (!lookup_real(full, &share)) return NOT_SUPPORTED;
  now_s = uptime_s();
  time->reference_us = (unsigned long long)(now_s * 1e6);
  time->violation_ns = (unsigned long long)(share * now_s * 1e9);
  return SUCCESS;
}

/* Instances of a GPU (MIG). */

typedef struct {
  unsigned sms, copy_engines, decoders, encoders, jpegs, ofas, slices, compute_slices;
  unsigned long long memory_mib;
} Attributes;

int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned *count) {
  ENTER_DEVICE(nvmlDeviceGetMaxMigDeviceCount)
  *count = 7;
  return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **instance) {
  char text[TEXT];
  unsigned there = 0;
  ENTER_DEVICE(nvmlDeviceGetMigDeviceHandleByIndex)
  for (int id = 0; id < MOST_INSTANCES; id++) {
    *instance = &instances[device->index][id];
    if (text_of(*instance, "uuid", text, sizeof text) == SUCCESS && there++ == index) return SUCCESS;
  }
  return NOT_FOUND;
}

int nvmlDeviceGetGpuInstanceId(Device *device, unsigned *id) {
  ENTER_DEVICE(nvmlDeviceGetGpuInstanceId)
  if (device->instance == WHOLE) return INVALID_ARGUMENT;
  *id = (unsigned)device->instance;
  return SUCCESS;
}

int nvmlDeviceGetAttributes_v2(Device *device, Attributes *attributes) {
  unsigned long long memory = 0;
  ENTER_DEVICE(nvmlDeviceGetAttributes_v2)
  if (device->instance == WHOLE) return INVALID_ARGUMENT;
  memset(attributes, 0, sizeof *attributes);
  unsigned_of(device, "sm_count", &attributes->sms);
  unsigned_of(device, "slices", &attributes->slices);
  if (number_of(device, "memory_total", &memory) == SUCCESS) attributes->memory_mib = memory >> 20;
  return SUCCESS;
}

ONE_NUMBER(nvmlDeviceGetNumGpuCores, "cores")
TWO_NUMBERS(nvmlDeviceGetCudaComputeCapability, "capability_major", "capability_minor")

/* GPM: metrics between two samples. */

typedef struct { const Device *device; double taken_s; } Sample;
typedef struct { unsigned version, supported; } GpmSupport;
typedef struct { unsigned id; int code; double value; char *names[3]; } GpmMetric;
typedef struct { unsigned version, count; Sample *first, *second; GpmMetric metrics[]; } GpmMetrics;

int nvmlGpmQueryDeviceSupport(Device *device, GpmSupport *support) {
  ENTER_DEVICE(nvmlGpmQueryDeviceSupport)
  if (support->version != 1) return INVALID_ARGUMENT;
  support->supported = 0;
  unsigned_of(&devices[device->index], "gpm", &support->supported);
  return SUCCESS;
}

int nvmlGpmSampleAlloc(Sample **sample) {
  int code = enter("nvmlGpmSampleAlloc");
  if (code == SUCCESS) *sample = calloc(1, sizeof **sample);
  return code;
}

int nvmlGpmSampleFree(Sample *sample) {
  free(sample);
  return SUCCESS;
}

int nvmlGpmSampleGet(Device *device, Sample *sample) {
  ENTER_DEVICE(nvmlGpmSampleGet)
  *sample = (Sample){device, uptime_s()};
  return SUCCESS;
}

int nvmlGpmMigSampleGet(Device *device, unsigned instance, Sample *sample) {
  ENTER_DEVICE(nvmlGpmMigSampleGet)
  if (device->instance != WHOLE || instance >= MOST_INSTANCES) return INVALID_ARGUMENT;
  *sample = (Sample){&instances[device->index][instance], uptime_s()};
  return SUCCESS;
}

int nvmlGpmMetricsGet(GpmMetrics *asked) {
  const Sample *sample = asked->first;
  unsigned long long strict = 0;
  int code;
  if (asked->version != 1 || !sample || !asked->second || !sample->device) return INVALID_ARGUMENT;
  if (asked->second->device != sample->device || asked->second->taken_s <= sample->taken_s) return INVALID_ARGUMENT;
  code = enter_device(sample->device, "nvmlGpmMetricsGet");
  if (code) return code;
  lookup_number("gpm_strict", &strict);
  for (unsigned index = 0; index < asked->count; index++) {
    GpmMetric *metric = &asked->metrics[index];
    char key[TEXT], full[TEXT];
    snprintf(key, sizeof key, "gpm.%u", metric->id);
    key_of(sample->device, key, full);
    metric->code = lookup_real(full, &metric->value) ? SUCCESS : NOT_SUPPORTED;
    if (metric->code && strict) return INVALID_ARGUMENT;
  }
  return SUCCESS;
}

/* Errors of the memory. */

typedef struct {
  unsigned version;
  unsigned long long counts[11];
  unsigned threshold_exceeded;
} SramStatus;
typedef struct { unsigned max, high, partial, low, none; } RemapHistogram;

typedef struct {
  Device *device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
} EventData;

enum { XID_EVENT = 8, TIMEOUT = 10 };
static char xids[MOST_DEVICES][TEXT], registered[MOST_DEVICES];

int nvmlEventSetCreate(void **set) {
  *set = registered;
  return enter("nvmlEventSetCreate");
}

int nvmlEventSetFree(void *set) {
  (void)set;
  return SUCCESS;
}

int nvmlDeviceRegisterEvents(Device *device, unsigned long long types, void *set) {
  ENTER_DEVICE(nvmlDeviceRegisterEvents)
  if (set != registered || types != XID_EVENT || device->instance != WHOLE) return INVALID_ARGUMENT;
  registered[device->index] = 1;
  if (text_of(device, "xid", xids[device->index], TEXT)) xids[device->index][0] = 0;
  return SUCCESS;
}

int nvmlEventSetWait_v2(void *set, EventData *data, unsigned timeout_ms) {
  char text[TEXT];
  int code = enter("nvmlEventSetWait_v2");
  if (code) return code;
  (void)timeout_ms;
  for (int index = 0; set == registered && index < MOST_DEVICES; index++) {
    if (!registered[index] || text_of(&devices[index], "xid", text, sizeof text) || strcmp(text, xids[index]) == 0) continue;
    snprintf(xids[index], TEXT, "%s", text);
    *data = (EventData){&devices[index], XID_EVENT, strtoull(text, NULL, 10), ~0u, ~0u};
    return SUCCESS;
  }
  return TIMEOUT;
}

TWO_NUMBERS(nvmlDeviceGetEccMode, "ecc_mode", "ecc_mode_pending")
ONE_NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pending")

int nvmlDeviceGetTotalEccErrors(Device *device, unsigned uncorrectable, unsigned aggregate, unsigned long long *count) {
  static const char *const keys[2][2] = {{"ecc_corrected", "ecc_uncorrectable"},
                                         {"ecc_aggregate_corrected", "ecc_aggregate_uncorrectable"}};
  ENTER_DEVICE(nvmlDeviceGetTotalEccErrors)
  return uncorrectable > 1 || aggregate > 1 ? INVALID_ARGUMENT : number_of(device, keys[aggregate][uncorrectable], count);
}

int nvmlDeviceGetSramEccErrorStatus(Device *device, SramStatus *status) {
  ENTER_DEVICE(nvmlDeviceGetSramEccErrorStatus)
  memset(status->counts, 0, sizeof status->counts);
  return unsigned_of(device, "sram_threshold_exceeded", &status->threshold_exceeded);
}

int nvmlDeviceGetRemappedRows(Device *device, unsigned *corrected, unsigned *uncorrectable, unsigned *pending,
                              unsigned *failure) {
  ENTER_DEVICE(nvmlDeviceGetRemappedRows)
  if (unsigned_of(device, "remap_corrected", corrected) || unsigned_of(device, "remap_uncorrectable", uncorrectable) ||
      unsigned_of(device, "remap_pending", pending))
    return NOT_SUPPORTED;
  return unsigned_of(device, "remap_failure", failure);
}

int nvmlDeviceGetRowRemapperHistogram(Device *device, RemapHistogram *banks) {
  char text[TEXT];
  ENTER_DEVICE(nvmlDeviceGetRowRemapperHistogram)
  if (text_of(device, "remap_banks", text, sizeof text)) return NOT_SUPPORTED;
  sscanf(text, "%u %u %u %u %u", &banks->max, &banks->high, &banks->partial, &banks->low, &banks->none);
  return SUCCESS;
}

int nvmlDeviceGetRetiredPages(Device *device, unsigned cause, unsigned *count, unsigned long long *addresses) {
  unsigned there = 0, room = *count;
  ENTER_DEVICE(nvmlDeviceGetRetiredPages)
  if (unsigned_of(device, cause ? "retired_double_bit" : "retired_single_bit", &there)) return NOT_SUPPORTED;
  *count = there;
  if (there > room) return INSUFFICIENT_SIZE;
  for (unsigned page = 0; addresses && page < there; page++) addresses[page] = 0x1000ull * (page + 1);
  return SUCCESS;
}

/* PCIe and NVLink. */

ONE_NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation")
ONE_NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation_max")
ONE_NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
ONE_NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max")
ONE_NUMBER(nvmlDeviceGetPcieReplayCounter, "pcie_replays")

static int nvlink_number(const Device *device, unsigned link, const char *name, unsigned long long *number) {
  char key[TEXT];
  snprintf(key, sizeof key, "nvlink.%u.%s", link, name);
  return number_of(device, key, number);
}

int nvmlDeviceGetNvLinkState(Device *device, unsigned link, unsigned *active) {
  unsigned long long number = 0;
  ENTER_DEVICE(nvmlDeviceGetNvLinkState)
  if (nvlink_number(device, link, "active", &number)) return NOT_SUPPORTED;
  *active = (unsigned)number;
  return SUCCESS;
}

int nvmlDeviceGetNvLinkErrorCounter(Device *device, unsigned link, unsigned counter, unsigned long long *count) {
  static const char *const names[] = {"replay", "recovery", "crc_flit", "crc_data"};
  ENTER_DEVICE(nvmlDeviceGetNvLinkErrorCounter)
  return counter > 3 ? INVALID_ARGUMENT : nvlink_number(device, link, names[counter], count);
}

typedef struct { unsigned version; unsigned char cluster[16]; int status; unsigned clique, state, health_mask; } Fabric;

int nvmlDeviceGetGpuFabricInfoV(Device *device, Fabric *fabric) {
  unsigned status = 0;
  ENTER_DEVICE(nvmlDeviceGetGpuFabricInfoV)
  memset(fabric->cluster, 0, sizeof fabric->cluster);
  fabric->clique = fabric->health_mask = 0;
  unsigned_of(device, "fabric_health_mask", &fabric->health_mask);
  unsigned_of(device, "fabric_status", &status);
  fabric->status = (int)status;
  return unsigned_of(device, "fabric_state", &fabric->state);
}

/* Field values and processes. */

typedef struct {
  unsigned id, scope;
  long long timestamp, latency_us;
  unsigned value_type;
  int code;
  unsigned long long value;
} FieldValue;

int nvmlDeviceGetFieldValues(Device *device, int count, FieldValue *values) {
  ENTER_DEVICE(nvmlDeviceGetFieldValues)
  for (int index = 0; index < count; index++) {
    char key[TEXT];
    snprintf(key, sizeof key, values[index].scope ? "field.%u.%u" : "field.%u", values[index].id, values[index].scope);
    values[index].value_type = 3; /* unsigned long long */
    values[index].code = number_of(device, key, &values[index].value);
  }
  return SUCCESS;
}

typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } Process;

static int processes_of(const Device *device, const char *kind, unsigned *count, Process *found) {
  unsigned there = 0, room = *count;
  char key[TEXT], value[TEXT];
  for (;; there++) {
    snprintf(key, sizeof key, "device.%u.%s.%u", device->index, kind, there);
    if (!lookup(key, value)) break;
    if (found && there < room) {
      memset(&found[there], 0, sizeof found[there]);
      sscanf(value, "%u %llu", &found[there].pid, &found[there].used);
      found[there].gpu_instance = found[there].compute_instance = ~0u;
    }
  }
  *count = there;
  return there > room ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned *count, Process *found) {
  ENTER_DEVICE(nvmlDeviceGetComputeRunningProcesses_v3)
  return processes_of(device, "process", count, found);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(Device *device, unsigned *count, Process *found) {
  ENTER_DEVICE(nvmlDeviceGetGraphicsRunningProcesses_v3)
  return processes_of(device, "graphics_process", count, found);
}
