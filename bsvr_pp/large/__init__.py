"""Models of many rows: fitted block by block into a folder, on one machine or a cluster."""

from bsvr_pp.large.folder_fit import fit_folder
from bsvr_pp.large.folder_model import FolderModel

__all__ = ["FolderModel", "fit_folder"]
