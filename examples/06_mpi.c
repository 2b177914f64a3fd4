/*
 * One batch that several ranks hold together, over MPI. Every rank gets the value of all rows, and
 * the gradient of its own; with any number of ranks they are those of one process.
 *
 *   mpicc 06_mpi.c $(pkg-config --cflags --libs zonal) -lm -o mpi && mpirun -n 4 ./mpi
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <zonal/mpi.h>
#include <zonal/zonal.h>

enum { BATCH = 1000, DIM = 64 };

/* Any numbers that depend on the place in the batch alone. */
static float entry(int row, int column) {
    return (float)sin(1 + row * 12.9898 + column * 78.233);
}

static zonal_status spread(const zonal_communicator *communicator, double *value) {
    int rank = communicator->rank, ranks = communicator->ranks;
    int first = BATCH * rank / ranks, rows = BATCH * (rank + 1) / ranks - first;
    float *z = malloc(sizeof(float[DIM]) * (size_t)rows);
    float *gradient = malloc(sizeof(float[DIM]) * (size_t)rows);
    zonal_plan *plan = NULL;
    zonal_status status = ZONAL_MEMORY;
    if (z && gradient) {
        for (int i = 0; i < rows * DIM; i++) z[i] = entry(first + i / DIM, i % DIM);
        status = zonal_plan_make_with(communicator, "mmd-heat", "precision=fp32", rows, DIM, &plan);
        if (status == ZONAL_OK) status = zonal_plan_execute(plan, z, value, gradient);
    }
    zonal_plan_destroy(plan);
    free(z);
    free(gradient);
    return status;
}

int main(int argc, char **argv) {
    zonal_mpi mpi;
    zonal_communicator communicator = ZONAL_COMMUNICATOR_INIT;
    double value = NAN;
    MPI_Init(&argc, &argv);
    if (zonal_mpi_open(&mpi, MPI_COMM_WORLD, 60, &communicator) || spread(&communicator, &value)) {
        fprintf(stderr, "rank %d: %s\n", communicator.rank, zonal_last_error()->message);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (communicator.rank == 0)
        printf("%d rows on %d ranks: %.6f\n", BATCH, communicator.ranks, value);
    zonal_mpi_close(&mpi);
    MPI_Finalize();
    return 0;
}
