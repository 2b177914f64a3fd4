/*
 * zonal/mpi.h with pieces of 1000 bytes, in the place of a gigabyte: what MPI cannot count at once
 * must arrive whole. Run by ranks_test.py, under mpirun.
 */
#define ZONAL_MPI_PIECE 1000
#include "zonal/mpi.h"

#include "collectives.h"

int main(int argc, char **argv) {
    zonal_mpi mpi;
    zonal_communicator communicator = ZONAL_COMMUNICATOR_INIT;
    MPI_Init(&argc, &argv);
    if (zonal_mpi_open(&mpi, MPI_COMM_WORLD, 60, &communicator) ||
        check_collectives(&communicator)) {
        fprintf(stderr, "rank %d: %s\n", communicator.rank, zonal_last_error()->message);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (communicator.rank == 0) puts("done");
    zonal_mpi_close(&mpi);
    MPI_Finalize();
    return 0;
}
