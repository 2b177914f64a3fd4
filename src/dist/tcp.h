/*
 * Inside the transport over TCP: the sockets, and how they come to be.
 */
#ifndef ZONAL_DIST_TCP_H
#define ZONAL_DIST_TCP_H

#include "dist/launch.h"

/* Finds the other ranks of a job: rank 0 listens, the others come to it. socket[r] becomes a
 * connected, nonblocking socket: on rank 0 to each other rank r, on the others to rank 0 alone;
 * all else is -1, also after failure. ZONAL_IO when not all have come after "seconds".
 *
 * Whoever comes is asked for a word of greeting with the rank, the number of ranks and the run.
 * What does not greet in time is put out, and what greets wrongly is told why. That keeps jobs
 * apart; it does not keep out those who mean harm and can reach the port. */
zonal_status zonal__tcp_join(const zonal__launch *launch, double seconds, int *socket);

/* Sends or receives all bytes, or fails after "seconds": 0, or an errno (ECONNRESET at the end of
 * the stream, ETIMEDOUT). */
int zonal__tcp_send(int socket, const void *bytes, size_t count, double seconds);
int zonal__tcp_receive(int socket, void *bytes, size_t count, double seconds);

#endif
