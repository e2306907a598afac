"""How numbers of the field are written and read: ISD-ASes, bandwidths, times. Pure."""
