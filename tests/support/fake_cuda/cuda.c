/* A CUDA driver library without a GPU: device memory is the host's, the kernel `saxpy` runs here; of any other kernel each
 * launch is a line in the file FAKE_CUDA_LAUNCHES. FAKE_CUDA holds words: count=N, wrong=INDEX (its results are off by
 * one), error=CODE (cuInit gives it), launch_error=CODE. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int current = -1;

static int word(const char *name, int otherwise) {
    const char *text = getenv("FAKE_CUDA");
    size_t length = strlen(name);
    while (text && *text) {
        if (strncmp(text, name, length) == 0 && text[length] == '=')
            return atoi(text + length + 1);
        text = strchr(text, ' ');
        if (text)
            text++;
    }
    return otherwise;
}

int cuInit(unsigned flags) { (void)flags; return word("error", 0); }
int cuDeviceGetCount(int *count) { *count = word("count", 1); return 0; }
int cuDeviceGet(int *device, int index) { *device = index; return index < word("count", 1) ? 0 : 101; }
int cuDeviceGetName(char *name, int length, int device) {
    snprintf(name, (size_t)length, "Fake GPU %d", device);
    return 0;
}
int cuDeviceGetUuid(unsigned char *uuid, int device) {
    memset(uuid, 0, 16);
    uuid[0] = (unsigned char)(0xf0 + device);
    return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)(intptr_t)(device + 1); return 0; }
int cuCtxSetCurrent(void *context) { current = (int)(intptr_t)context - 1; return 0; }
int cuCtxGetDevice(int *device) { *device = current < 0 ? 0 : current; return 0; }
/* An H100's: SMs, threads and shared memory of an SM, shared memory that a block may take. */
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    *value = attribute == 16 ? 132 : attribute == 39 ? 2048 : attribute == 81 ? 233472 : attribute == 97 ? 232448 : -1;
    return *value < 0;
}
int cuModuleLoadData(void **module, const char *image) {
    *module = (void *)image;
    return strstr(image, ".visible .entry saxpy(") || strncmp(image, "CUBIN", 5) == 0 ? 0 : 218;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    static char names[16][32];
    static int known;
    (void)module;
    if (strcmp(name, "saxpy") && strncmp(module, "CUBIN", 5))
        return 500;
    *function = names[known % 16];
    snprintf(names[known++ % 16], sizeof names[0], "%s", name);
    return 0;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
    (void)function;
    return attribute != 8 || value < 0 || value > 232448;
}
int cuMemAlloc_v2(uint64_t *place, size_t size) { *place = (uint64_t)(uintptr_t)malloc(size); return *place ? 0 : 2; }
int cuMemFree_v2(uint64_t place) { free((void *)(uintptr_t)place); return 0; }
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) { memcpy((void *)(uintptr_t)to, from, size); return 0; }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) { memcpy(to, (void *)(uintptr_t)from, size); return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **words, void **extra) {
    if (strcmp(function, "saxpy")) {
        const char *path = getenv("FAKE_CUDA_LAUNCHES");
        FILE *file = path ? fopen(path, "a") : NULL;
        if (file) {
            fprintf(file, "%s %u %u %u %llu\n", (char *)function, gx, bx, shared, *(unsigned long long *)words[0]);
            fclose(file);
        }
        return word("launch_error", 0);
    }
    float a = *(float *)words[0];
    const float *x = (float *)(uintptr_t)*(uint64_t *)words[1], *y = (float *)(uintptr_t)*(uint64_t *)words[2];
    float *out = (float *)(uintptr_t)*(uint64_t *)words[3];
    uint32_t n = *(uint32_t *)words[4];
    (void)gy, (void)gz, (void)by, (void)bz, (void)stream, (void)extra;
    if (word("launch_error", 0))
        return word("launch_error", 0);
    for (uint32_t i = 0; i < n && i < gx * bx; i++)
        out[i] = a * x[i] + y[i];
    if (current == word("wrong", -1))
        out[0] += 1;
    return 0;
}
int cuGetErrorString(int code, const char **text) {
    *text = code == 214 ? "uncorrectable ECC error encountered" : "an error";
    return 0;
}
