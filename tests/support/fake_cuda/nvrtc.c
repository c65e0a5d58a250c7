/* An NVRTC that compiles nothing: sources must hold `__global__` and architectures begin with sm_; what it makes is CUBIN and
 * the source, which the driver beside it loads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct program { char *source; char log[256]; };

int nvrtcCreateProgram(struct program **made, const char *source, const char *name, int headers, const void *h, const void *n) {
    (void)name, (void)h, (void)n;
    *made = calloc(1, sizeof **made);
    (*made)->source = strdup(source);
    return headers != 0;
}
int nvrtcCompileProgram(struct program *program, int count, const char **options) {
    if (count != 1 || strncmp(options[0], "--gpu-architecture=sm_", 22) || strstr(options[0], "sm_10")) {
        snprintf(program->log, sizeof program->log, "error: invalid value for %s", count ? options[0] : "nothing");
        return 5;
    }
    return strstr(program->source, "__global__") ? 0 : 6;
}
int nvrtcGetCUBINSize(struct program *program, size_t *size) { *size = strlen(program->source) + 6; return 0; }
int nvrtcGetCUBIN(struct program *program, char *image) {
    strcpy(image, "CUBIN");
    strcat(image, program->source);
    return 0;
}
int nvrtcGetProgramLogSize(struct program *program, size_t *size) { *size = strlen(program->log) + 1; return 0; }
int nvrtcGetProgramLog(struct program *program, char *log) { strcpy(log, program->log); return 0; }
int nvrtcDestroyProgram(struct program **program) { free((*program)->source); free(*program); return 0; }
const char *nvrtcGetErrorString(int code) { return code == 5 ? "NVRTC_ERROR_INVALID_OPTION" : "NVRTC_ERROR_COMPILATION"; }
