/*
 * Neighbouring channels on their way through a thread, and activations, for the layers on CUDA.
 *
 * A vector is V elements of type T as they lie in memory: V = 8, in loads and stores of 16 bytes,
 * or V = 1. Arrays that are read in vectors of 8 begin at a multiple of 16 bytes, as all arrays of
 * a network do.
 */
#ifndef ZONAL_BACKEND_CUDA_TRAINING_NN_VECTOR_CUH
#define ZONAL_BACKEND_CUDA_TRAINING_NN_VECTOR_CUH

#include "backend/cuda/training/nn.cuh"

template <typename T, int V> struct nn_vector;
template <> struct nn_vector<__nv_bfloat16, 8> { uint4 raw; };
template <> struct nn_vector<float, 8> { float4 low, high; };
template <typename T> struct nn_vector<T, 1> { T raw; };

template <typename T, int V> __device__ inline nn_vector<T, V> nn_read(const T *from) {
    return *(const nn_vector<T, V> *)from;
}

__device__ inline void nn_widen_pair(unsigned pair, float *out) {
    out[0] = __uint_as_float(pair << 16);
    out[1] = __uint_as_float(pair & 0xffff0000u);
}

__device__ inline void nn_widen(const nn_vector<__nv_bfloat16, 8> &vector, float (&out)[8]) {
    nn_widen_pair(vector.raw.x, out);
    nn_widen_pair(vector.raw.y, out + 2);
    nn_widen_pair(vector.raw.z, out + 4);
    nn_widen_pair(vector.raw.w, out + 6);
}
__device__ inline void nn_widen(const nn_vector<float, 8> &vector, float (&out)[8]) {
    out[0] = vector.low.x, out[1] = vector.low.y, out[2] = vector.low.z, out[3] = vector.low.w;
    out[4] = vector.high.x, out[5] = vector.high.y, out[6] = vector.high.z, out[7] = vector.high.w;
}
template <typename T>
__device__ inline void nn_widen(const nn_vector<T, 1> &vector, float (&out)[1]) {
    out[0] = zonal__load(&vector.raw);
}

__device__ inline unsigned nn_round_pair(float low, float high) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *(const unsigned *)&pair;
}

__device__ inline void nn_write(__nv_bfloat16 *to, const float (&value)[8]) {
    *(uint4 *)to = make_uint4(nn_round_pair(value[0], value[1]), nn_round_pair(value[2], value[3]),
                              nn_round_pair(value[4], value[5]), nn_round_pair(value[6], value[7]));
}
__device__ inline void nn_write(float *to, const float (&value)[8]) {
    ((float4 *)to)[0] = make_float4(value[0], value[1], value[2], value[3]);
    ((float4 *)to)[1] = make_float4(value[4], value[5], value[6], value[7]);
}
template <typename T> __device__ inline void nn_write(T *to, const float (&value)[1]) {
    zonal__store(to, value[0]);
}

/* V parameters of neighbouring channels. */
template <int V> __device__ inline void nn_parameters(const float *from, float (&out)[V]) {
#pragma unroll
    for (int k = 0; k < V; k++) out[k] = from[k];
}

/* ---- activations ----------------------------------------------------------------------------- */

/* A NaN is not <= 0, so relu passes it on. gelu to about 1e-6 (1 + |z|). */
template <zonal__activation A> __device__ inline float nn_activate(float z) {
    if (A == ZONAL__ACTIVATION_RELU) return z <= 0 ? 0 : z;
    if (A == ZONAL__ACTIVATION_GELU) return z * normcdff(z);
    return z;
}

template <zonal__activation A> __device__ inline float nn_derivative(float z) {
    if (A == ZONAL__ACTIVATION_RELU) return z <= 0 ? 0 : 1;
    if (A == ZONAL__ACTIVATION_GELU)
        return normcdff(z) + z * expf(-0.5f * z * z) * 0.3989422804f; /* 1/sqrt(2 pi) */
    return 1;
}

#endif
