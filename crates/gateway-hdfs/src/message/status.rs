//! Messages of the calls about the cluster as a whole, and of the smaller protocols beside ClientProtocol.
