/* MPI over all ranks: each says who it is, and the sum of all ranks, which only a working collective knows. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, size, sum;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("mpi %d %d %d %s\n", rank, size, sum, getenv("RANK") ? getenv("RANK") : "-");
    fflush(stdout);
    if (argc > 1 && rank == atoi(argv[1])) {
        fprintf(stderr, "rank %d gives up\n", rank);
        return 7;
    }
    /* Not in MPI_Finalize: Open MPI may crash there when a rank is lost. */
    if (argc > 1)
        for (;;)
            pause();
    MPI_Finalize();
    return 0;
}
