/* A library with the names and the binary interface of NVML that answers from a text file.
 *
 * FAKE_NVML names the file, or a folder in which a node's file is <CORDEE_NODE or SLURMD_NODENAME>.txt, else default.txt.
 * Its lines are `key = value`; `#` begins a comment. It is read again at every question, so that it may change meanwhile.
 *
 *   count = 4                                   driver_version = 550.54.15
 *   device.0.temperature = 65                   what a device says; a key that is not there is "not supported"
 *   device.0.nvlink.3.crc_flit = 10+5           grows by 5 with every question of a process
 *   device.0.process.0 = 4711 1048576           process id and bytes of GPU memory
 *   device.0.field.82 = 60                      a field value; field.ID.SCOPE where it belongs to a link
 *   error.nvmlInitWithFlags = 18                the function returns this error
 *   device.0.error.nvmlDeviceGetName = 15       the same for one device; `error.*` means all functions of the device
 *   hang.nvmlInitWithFlags = 1                  the function never returns; device.0.hang.FUNCTION too
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9 };
enum { MOST_DEVICES = 64, MOST_GROWING = 512, TEXT = 256 };

typedef struct { unsigned index; } Device;
typedef struct { char text[160]; unsigned long long asked; } Growing;

static Device devices[MOST_DEVICES];
static Growing growing[MOST_GROWING];

static FILE *open_state(void) {
  const char *place = getenv("FAKE_NVML"), *node = getenv("CORDEE_NODE");
  char path[4096];
  struct stat status;
  if (!place) return NULL;
  if (stat(place, &status) == 0 && S_ISDIR(status.st_mode)) {
    if (!node) node = getenv("SLURMD_NODENAME");
    snprintf(path, sizeof path, "%s/%s.txt", place, node ? node : "default");
    if (access(path, R_OK) != 0) snprintf(path, sizeof path, "%s/default.txt", place);
    place = path;
  }
  return fopen(place, "r");
}

/* Looks a key up; returns whether it is there. */
static int lookup(const char *key, char value[TEXT]) {
  FILE *file = open_state();
  char line[1024];
  int found = 0;
  while (file && !found && fgets(line, sizeof line, file)) {
    char *equal = strchr(line, '='), *end;
    if (line[0] == '#' || !equal) continue;
    for (end = equal; end > line && (end[-1] == ' ' || end[-1] == '\t'); end--) continue;
    *end = 0;
    if (strcmp(line, key) != 0) continue;
    equal += 1 + strspn(equal + 1, " \t");
    equal[strcspn(equal, "\r\n")] = 0;
    snprintf(value, TEXT, "%s", equal);
    found = 1;
  }
  if (file) fclose(file);
  return found;
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

/* Hangs or returns an error where the file says so. */
static int enter(const char *prefix, const char *function) {
  char key[TEXT];
  unsigned long long number;
  snprintf(key, sizeof key, "%shang.%s", prefix, function);
  if (lookup_number(key, &number) && number)
    for (;;) pause();
  snprintf(key, sizeof key, "%serror.%s", prefix, function);
  if (lookup_number(key, &number)) return (int)number;
  return SUCCESS;
}

static int enter_device(const Device *device, const char *function) {
  char prefix[32];
  int code = enter("", function);
  if (code) return code;
  if (device < devices || device >= devices + MOST_DEVICES) return INVALID_ARGUMENT;
  snprintf(prefix, sizeof prefix, "device.%u.", device->index);
  code = enter(prefix, function);
  return code ? code : enter(prefix, "*");
}

static int number_of(const Device *device, const char *key, unsigned long long *number) {
  char full[TEXT];
  snprintf(full, sizeof full, "device.%u.%s", device->index, key);
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
  snprintf(full, sizeof full, "device.%u.%s", device->index, key);
  if (!lookup(full, value)) return NOT_SUPPORTED;
  snprintf(text, length, "%s", value);
  return SUCCESS;
}

static int system_text(const char *function, const char *key, char *text, unsigned length) {
  char value[TEXT];
  int code = enter("", function);
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
  FILE *file;
  int code = enter("", "nvmlInitWithFlags");
  (void)flags;
  if (code) return code;
  file = open_state();
  if (!file) return DRIVER_NOT_LOADED;
  fclose(file);
  for (unsigned index = 0; index < MOST_DEVICES; index++) devices[index].index = index;
  return SUCCESS;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) { return enter("", "nvmlShutdown"); }

const char *nvmlErrorString(int code) {
  switch (code) {
    case SUCCESS: return "The operation was successful";
    case NOT_SUPPORTED: return "Not Supported";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
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
  int code = enter("", "nvmlSystemGetCudaDriverVersion_v2");
  if (code) return code;
  if (!lookup_number("cuda_driver_version", &number)) return NOT_SUPPORTED;
  *version = (int)number;
  return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
  unsigned long long number = 0;
  int code = enter("", "nvmlDeviceGetCount_v2");
  if (code) return code;
  lookup_number("count", &number);
  *count = (unsigned)number;
  return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **device) {
  unsigned long long count = 0;
  lookup_number("count", &count);
  if (index >= count || index >= MOST_DEVICES) return INVALID_ARGUMENT;
  *device = &devices[index];
  return enter_device(*device, "nvmlDeviceGetHandleByIndex_v2");
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

/* Errors of the memory. */

typedef struct {
  unsigned version;
  unsigned long long counts[11];
  unsigned threshold_exceeded;
} SramStatus;
typedef struct { unsigned max, high, partial, low, none; } RemapHistogram;

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
