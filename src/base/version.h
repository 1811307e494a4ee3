/* version.h - the one place that has weft's version; the Makefile reads it from here. */
#ifndef WEFT_VERSION_H
#define WEFT_VERSION_H

#define WEFT_VERSION_STRING "0.1.0"

#endif
