"""Models of many rows: fitted block by block into a folder, on one machine or a cluster."""

from bsvr_pp.large.folder_fit import extend_folder, fit_folder
from bsvr_pp.large.folder_model import FolderModel, open_folder, predict_folder

__all__ = ["FolderModel", "extend_folder", "fit_folder", "open_folder", "predict_folder"]
