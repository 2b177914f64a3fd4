/*
 * Synchronised batch norms on CUDA: the sums of a kernel over this rank's rows become those over
 * all ranks', and what the next kernel needs is made of them. backend/training/nn_ranks.c has the
 * formulas.
 *
 * With a communicator on the device all of it is work on the stream. With one for host memory the
 * sums go through pinned memory and the processor waits, so no graph can hold it.
 */
#ifndef ZONAL_BACKEND_CUDA_TRAINING_NN_NORM_RANKS_CUH
#define ZONAL_BACKEND_CUDA_TRAINING_NN_NORM_RANKS_CUH

#include "backend/cuda/training/nn_norm.cuh"

typedef struct norm_ranks {
    const zonal_communicator *communicator; /* NULL: not synchronised */
    double *joined;                         /* device, [2][channels] */
    double *pinned;                         /* the same; NULL: the communicator is on the device */
} norm_ranks;

extern "C" {
/* On failure what is there is released by drop. */
zonal_status zonal__norm_ranks_make(const zonal__layer_spec *spec, norm_ranks *ranks);
void zonal__norm_ranks_drop(norm_ranks *ranks);

/* After the kernel that left its sums in args.joined; nothing where the norm is not synchronised.
 * Statistics: fills args.mean and args.inverse and moves the running ones. Sums: fills args.mean_g
 * and args.slope. */
zonal_status zonal__norm_join_statistics(const norm_ranks *ranks, const norm_args &args,
                                         cudaStream_t stream);
zonal_status zonal__norm_join_sums(const norm_ranks *ranks, const norm_args &args,
                                   cudaStream_t stream);
}

#endif
