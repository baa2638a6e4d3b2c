/* Stands in for the runtime library of CUDA, on a machine without a GPU, by LD_PRELOAD.

   It says that there is one GPU, and writes the name of each function that is called to the file
   named by NOTED_CALLS. What can be answered without a context is answered; all else of what torch
   calls, in refused.h, is refused as not supported: on a GPU it would make a context.

   It is not the driver below that is replaced, as the runtime asks it for a proof of being genuine;
   but torch asks the driver one thing itself, so this is found under the driver's name as well. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOT_SUPPORTED 801
#define MAJOR 75 /* cudaDevAttrComputeCapabilityMajor */
#define MAJOR_AT 360 /* of cudaDeviceProp */

static int note(const char *name, int answer)
{
    const char *path = getenv("NOTED_CALLS");
    int file = path ? open(path, O_WRONLY | O_APPEND | O_CREAT, 0600) : -1;
    if (file >= 0) {
        dprintf(file, "%s\n", name);
        close(file);
    }
    return answer;
}

#define ANSWER(name, parameters, set) int name parameters { set; return note(#name, 0); }
ANSWER(cudaGetDeviceCount, (int *count), *count = 1)
ANSWER(cudaGetDevice, (int *device), *device = 0)
ANSWER(cudaDriverGetVersion, (int *version), *version = 99000)
ANSWER(cudaDeviceCanAccessPeer, (int *can, int device, int peer), *can = 0)
ANSWER(cudaDeviceGetAttribute, (int *value, int which, int device), *value = which == MAJOR ? 9 : 0)
ANSWER(cudaGetDeviceProperties, (char *found, int device),
       memset(found, 0, MAJOR_AT + 8); *(int *)(found + MAJOR_AT) = 9)
ANSWER(cudaGetDeviceProperties_v2, (char *found, int device), cudaGetDeviceProperties(found, device))
ANSWER(cuDevicePrimaryCtxGetState, (int device, unsigned *flags, int *active), *flags = *active = 0)
ANSWER(cudaGetLastError, (void), )
ANSWER(cudaPeekAtLastError, (void), )

#define REFUSE(name) int name(void) { return note(#name, NOT_SUPPORTED); }
#include "refused.h"
