# For the Python wheel (scikit-build-core sets SKBUILD): the shared library alone, beside the package's
# modules. One file under one name: a wheel would hold a link as a second copy.
install(FILES $<TARGET_FILE:zonal> DESTINATION zonal RENAME libzonal.so)
